"""A model that can't be called is refused before anything of a message is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_host import KEY, Play, ask, hosted, messages, session_path, virtual
from helpers_serve import PATH, serving
from perdure.edges.models import anthropic, openai
from perdure.edges.models.catalog import resolve
from perdure.errors import ModelUnusable
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.records import Text, User

GPT = "openai/gpt-4.1"


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_new_session_on_a_model_without_a_key_is_refused_and_leaves_no_file(
    tmp_path: Path, loop: str
) -> None:
    async def main(clock: VirtualClock) -> None:
        async with Host(tmp_path / "state", model=GPT, clock=clock, environ={}) as host:
            with pytest.raises(ModelUnusable, match="can't be called: no API key: set OPENAI_API_KEY"):
                await host.send(KEY, "hello")
            assert not host.files.exists(KEY)

    virtual(main, loop)  # type: ignore[arg-type]


def test_a_session_that_chose_a_model_without_a_key_refuses_until_it_chooses_another(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "hello")
            await host.command(KEY, f"/model {GPT}")
            with pytest.raises(ModelUnusable, match="set OPENAI_API_KEY"):
                await host.send(KEY, "are you there?")
            assert len(messages(session_path(tmp_path), "user")) == 1
            await host.command(KEY, "/model scripted/test")
            assert (await ask(host, "and now?")).stop == "stop"

    virtual(main)


def test_a_session_with_a_model_that_works_is_not_refused_for_the_default_of_others(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock) as host:
            await ask(host, "hello")
        play = Play()
        scripted = play.model(clock)
        async with Host(
            tmp_path / "state", model=GPT, clock=clock, environ={}, models={scripted.info.ref: scripted.info},
            factories={"scripted": lambda _info: scripted}, workspace=tmp_path / "workspace",
        ) as host:  # fmt: skip
            assert (await ask(host, "and again")).stop == "stop"
            await host.note(KEY, User((Text("a note asks no model"),)))

    virtual(main)


def test_a_missing_package_is_told_before_the_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    model = openai.OpenAIModel(resolve(GPT), api_key="a key")
    assert model.lacks() == ""
    monkeypatch.setattr(openai, "find_spec", lambda name: None)
    assert "pip install 'perdure[openai]'" in model.lacks()


def test_credentials_that_only_the_sdk_reads_are_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in anthropic.CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path / "none"))
    model = anthropic.AnthropicModel(resolve("anthropic/claude-sonnet-4-5"))
    assert model.lacks() == anthropic.NO_KEY
    (tmp_path / "none").mkdir()
    assert model.lacks() == ""
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path / "gone"))
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "a token")
    assert model.lacks() == ""


def test_over_http_it_is_a_503_of_its_own_kind(tmp_path: Path) -> None:
    from helpers_host import real

    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            assert (await client.post(f"{PATH}/messages?wait=5", json={"text": "hello"})).status_code == 200
            await client.post(f"{PATH}/command", json={"line": f"/model {GPT}"})
            answer = await client.post(f"{PATH}/messages", json={"text": "hello?"})
            assert answer.status_code == 503
            assert answer.json()["error"]["kind"] == "model_unusable"
            assert "OPENAI_API_KEY" in answer.json()["error"]["message"]

    real(main)
