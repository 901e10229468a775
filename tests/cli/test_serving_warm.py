"""What `perdure serve` loads before anybody comes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from helpers_host import real
from perdure.cli import serving
from perdure.edges.models import scripted
from perdure.edges.models.tokenizer import Tokenizer
from perdure.host import Host


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_tokenizer_of_the_scripted_model_is_loaded_beside_the_loop_at_the_start(
    tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[threading.Thread] = []

    class Told(Tokenizer):
        def load(self) -> None:
            where.append(threading.current_thread())

    monkeypatch.setattr(scripted, "TOKENIZER", Told())

    async def main() -> None:
        async with Host(tmp_path / "state", environ={}) as host:
            await serving._warm(host)

    real(main, loop)  # type: ignore[arg-type]
    assert len(where) == 1
    assert where[0] is not threading.main_thread()
