"""Checks an engine against the laws: `check(factory)` answers a finding for each.

Each law gets an empty folder, a loop and a thread of its own, so that an engine which never comes back costs
its law and nothing else.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from perdure.records import Record
from perdure.testing.laws import LAWS
from perdure.testing.laws.bench import AnyFactory, Bench
from perdure.testing.laws.law import Broken, Law, Loop

DEADLINE = 10.0  # seconds of one call of an engine
PATIENCE = 6  # deadlines that a law may take before it is given up


class Finding(Record):
    """What became of one law on one loop. `broken` is one line, "" where it was kept."""

    law: str
    sentence: str
    source: str
    loop: str
    broken: str = ""

    @property
    def kept(self) -> bool:
        return not self.broken


def check(
    factory: AnyFactory,
    laws: Iterable[Law] = LAWS,
    *,
    settings: Mapping[str, Any] | None = None,
    deadline: float = DEADLINE,
) -> Iterator[Finding]:
    """Check one law after another. `factory` makes an engine, of nothing or of what its plugin is lent."""
    for law in laws:
        for loop in law.loops:
            told = examine(factory, law, loop, settings=settings or {}, deadline=deadline)
            yield Finding(law.id, law.sentence, law.source, loop, told)


def examine(
    factory: AnyFactory, law: Law, loop: Loop = "asyncio", *, settings: Mapping[str, Any], deadline: float
) -> str:
    """One law on one loop: why it is broken, in one line, or ""."""
    told: list[str] = []

    def work(root: Path) -> None:
        told.append(_checked(Bench(factory, root, settings=settings, deadline=deadline), law, loop))

    with _folder() as root:
        thread = threading.Thread(target=work, args=(root,), name=f"law {law.id}", daemon=True)
        thread.start()
        thread.join(deadline * PATIENCE + DEADLINE)
        if thread.is_alive():
            return "expected every call to come back; one holds its loop and did not"
    return told[0]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="perdure-law-", ignore_cleanup_errors=True) as name:
        root = Path(name).resolve() / "law"
        root.mkdir()
        yield root


def _checked(bench: Bench, law: Law, loop: Loop) -> str:
    try:
        anyio.run(partial(_run, bench, law), backend=loop)
    except BaseException as error:
        return _line(error)
    return ""


async def _run(bench: Bench, law: Law) -> None:
    try:
        await law.check(bench)
    finally:
        await bench.close()


def _line(error: BaseException) -> str:
    """In words; of a group what broke the law."""
    while isinstance(error, BaseExceptionGroup):
        inner = error.exceptions
        error = next((each for each in inner if isinstance(each, Broken)), inner[0])
    text = str(error) if isinstance(error, Broken) else f"expected no error; {type(error).__name__}: {error}"
    return " ".join(text.encode(errors="replace").decode().split())[:400]
