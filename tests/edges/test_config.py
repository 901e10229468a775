"""Configuration: order of the layers, findings for whatever is wrong, and the state folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.edges.config import check, load
from perdure.edges.schema import build, snake
from perdure.edges.settings import ChannelSettings, DirectSettings, Settings
from perdure.edges.state import create, make_workspace, state_folder
from perdure.errors import ConfigError

GOOD = """
[models]
default = "anthropic/claude"
window = 32000
[plugins.slots]
contextEngine = "lossless"
[channels.telegram]
historyLimit = 20
[channels.telegram.dms."123"]
historyLimit = 5
[tools.exec]
mode = "ask"
allow = ["git status"]
[mcp.files]
command = "files-server"
args = ["--root", "."]
env = { B = "2", A = "1" }
[guard]
total = 0.5
overflow = 1
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "perdure.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_becomes_settings_and_camel_case_is_accepted(tmp_path: Path) -> None:
    settings = load(write(tmp_path, GOOD), environ={})
    assert settings.models.window == 32_000
    assert settings.plugins.slots.context_engine == "lossless"
    assert settings.channels == (ChannelSettings("telegram", 20, None, (DirectSettings("123", 5),)),)
    assert settings.tools.exec.allow == ("git status",)
    assert settings.mcp[0].env == (("A", "1"), ("B", "2"))
    assert settings.guard.overflow == 1.0


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    path = write(tmp_path, '[models]\ndefault = "file"\nretries = 1\n[log]\nlevel = "debug"')
    environ = {"PERDURE_MODEL": "env", "PERDURE_MODELS__RETRIES": "2", "PERDURE_SESSIONS": "x"}
    settings = load(path, flags={"models.default": "flag", "models.window": None}, environ=environ)
    assert (settings.models.default, settings.models.retries, settings.log.level) == ("flag", 2, "debug")
    assert load(environ={}) == Settings()


def test_an_environment_spelling_overrides_the_file_s_other_spelling(tmp_path: Path) -> None:
    settings = load(write(tmp_path, GOOD), environ={"PERDURE_PLUGINS__SLOTS__CONTEXT_ENGINE": "legacy"})
    assert settings.plugins.slots.context_engine == "legacy"


def test_the_file_is_found_by_environment_or_in_the_state_folder_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, '[models]\ndefault = "found"')
    monkeypatch.chdir(tmp_path)
    assert load(environ={}).models.default == ""
    assert load(state=tmp_path, environ={}).models.default == "found"
    assert load(environ={"PERDURE_CONFIG": str(path)}).models.default == "found"
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "missing.toml", environ={})


@pytest.mark.parametrize(
    ("text", "key", "accepted"),
    [
        ("[models]\nthinkng = 'low'", "models.thinkng", "thinking"),
        ("[models]\nthinking = 'very'", "models.thinking", "medium, minimal, off"),
        ("[models]\nwindow = -1", "models.window", "a whole number from 0"),
        ("[models]\nwindow = 1.5", "models.window", "a whole number"),
        ("[models]\nwindow = true", "models.window", "a whole number"),
        ("[models]\nwindow = '9'", "models.window", "a whole number"),
        ("[guard]\ntotal = 1.5", "guard.total", "up to 1"),
        ("[guard]\ntotal = nan", "guard.total", "a number"),
        ("[host]\nawake = 99999999999999999999999", "host.awake", "a whole number from 1"),
        ("[host]\nmemory_mb = -1", "host.memory_mb", "a whole number from 0"),
        ("models = 3", "models", "a table of"),
        ("[tools]\nallow = 'read'", "tools.allow", "a list of texts"),
        ("[tools]\nallow = [1]", "tools.allow", "a list of texts"),
        ("[log.level]\nx = 1", "log.level", "debug, error, info"),
        ("[channels]\ntelegram = 5", "channels.telegram", "a table of"),
        ("[channels.telegram]\nname = 'x'", "channels.telegram.name", "history_limit"),
        ("channels = 5", "channels", "[channels.<name>]"),
        ("[channels.'a b']\n", "channels.'a b'", "letters"),
        ("[mcp.x]\nenv = { A = 1 }", "mcp.x.env.A", "text"),
        ("[mcp.x]\nenv = 1", "mcp.x.env", "text"),
        ("[outbound.x]\nmax_age_hours = 169", "outbound.x.max_age_hours", "up to 168"),
        ("[plugins.slots]\ncontextEngine = 'a'\ncontext_engine = 'b'", "plugins.slots.context_engine", ""),
        ("unknown = 1", "unknown", "models"),
        ("[unknown.deep]\nx = 1", "unknown", "models"),
    ],
)
def test_what_is_wrong_is_named_with_file_key_and_what_is_accepted(
    tmp_path: Path, text: str, key: str, accepted: str
) -> None:
    path = write(tmp_path, text)
    findings = check(path)
    assert [finding.key for finding in findings] == [key]
    assert accepted in findings[0].accepted
    with pytest.raises(ConfigError) as caught:
        load(path, environ={})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[guard]\ntotal = 0.95", "guard.total"),
        ("[pruning]\nsoft_trim_ratio = 0.6", "pruning.soft_trim_ratio"),
        ("[tools.exec]\ntimeout_seconds = 9000", "tools.exec.timeout_seconds"),
        ("[mcp.x]\nargs = ['a']", "mcp.x"),
        ("[outbound.x]\nsecret_env = 'A'", "outbound.x.url"),
        ("[outbound.x]\nurl = 'ftp://x'", "outbound.x.url"),
        ("[mcp.x]\ncommand = 'a'\nurl = 'b'", "mcp.x"),
    ],
)
def test_settings_that_contradict_each_other_are_found(tmp_path: Path, text: str, key: str) -> None:
    path = write(tmp_path, text)
    assert [finding.key for finding in check(path)] == [key]
    with pytest.raises(ConfigError, match=key):
        load(path, environ={})


def test_every_finding_is_listed_not_only_the_first(tmp_path: Path) -> None:
    findings = check(write(tmp_path, "[models]\na = 1\nwindow = -1\n[log]\nlevel = 'loud'"))
    assert [finding.key for finding in findings] == ["models.a", "models.window", "log.level"]
    with pytest.raises(ConfigError, match="and 2 more"):
        load(tmp_path / "perdure.toml", environ={})


def test_a_finding_names_the_layer_it_came_from() -> None:
    with pytest.raises(ConfigError, match=r"the environment: models\.window"):
        load(environ={"PERDURE_MODELS__WINDOW": "small"})
    with pytest.raises(ConfigError, match=r"a flag: log\.level"):
        load(environ={}, flags={"log.level": "loud"})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"[models", "not valid TOML"),
        (b"a = 1\na = 2", "not valid TOML"),
        (b"#" * (1 << 21), "larger"),
        (b"x = " + b"[" * 20_000, "TOML|deeply"),
    ],
)
def test_a_file_that_is_no_toml_gives_one_line(tmp_path: Path, data: bytes, reason: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(ConfigError, match=reason):
        load(path, environ={})
    assert len(check(path)) == 1


def test_a_folder_or_fifo_instead_of_a_file_gives_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="not a regular file"):
            load(path, environ={})


KEYS = st.sampled_from(["models", "name", "exec", "env", "dms", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)
SECTIONS = st.sampled_from(list(Settings.__struct_fields__))


@settings(max_examples=40)
@given(st.dictionaries(SECTIONS, VALUES, max_size=4))
def test_any_tables_give_settings_and_findings_never_an_exception(tables: dict[str, object]) -> None:
    made, findings = build(Settings, [(tables, "here")])
    assert isinstance(made, Settings)
    assert all(finding.source and str(finding) for finding in findings)


def test_keys_change_case_as_expected() -> None:
    assert [snake(key) for key in ("contextEngine", "context_engine", "HTTP", "dmHistoryLimit")] == [
        "context_engine", "context_engine", "http", "dm_history_limit",
    ]  # fmt: skip


def test_the_state_folder_is_told_by_flag_then_environment_then_home(tmp_path: Path) -> None:
    environ = {"PERDURE_HOME": str(tmp_path / "env")}
    assert state_folder(tmp_path / "flag", environ).path == tmp_path / "flag"
    assert state_folder(None, environ).path == tmp_path / "env"
    assert state_folder(None, {}).path == Path.home() / ".perdure"
    assert not (tmp_path / "env").exists()


def test_a_new_state_folder_is_private(tmp_path: Path) -> None:
    folder = create(state_folder(tmp_path / "a" / "state"))
    for path in (folder.path, folder.sessions, folder.evidence, folder.archive, folder.journal):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert make_workspace(folder, "main") == folder.workspaces / "main"
    create(folder)


def test_a_state_folder_that_can_t_be_made_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can't be made"):
        create(state_folder(tmp_path / "file" / "state"))
    with pytest.raises(ConfigError, match="NUL"):
        state_folder("a\0b", {})
    for name in ("", "..", "a/b", "a\0"):
        with pytest.raises(ConfigError, match="agent's name"):
            make_workspace(state_folder(tmp_path / "s"), name)


def test_a_server_and_its_tenants_are_configured_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "perdure.toml"
    file.write_text(f"""
[server]
port = 9000
maxBodyMb = 4
[tracing]
endpoint = "http://127.0.0.1:4318/v1/traces"
[tenants.ada]
agents = ["ant"]
token_sha256 = "{"ab" * 32}"
""")
    assert check(file) == []
    settings = load(file, environ={})
    assert (settings.server.port, settings.server.max_body_mb) == (9000, 4)
    assert settings.tenants[0].agents == ("ant",)
    file.write_text('[server]\nport = 70000\n[tenants.ada]\ntoken_sha256 = "abc"\n')
    assert [finding.key for finding in check(file)] == ["server.port"]
    file.write_text('[tenants.ada]\ntoken_sha256 = "abc"\ntoken_env = "A"\n')
    assert [finding.key for finding in check(file)] == ["tenants.ada", "tenants.ada.token_sha256"]
