from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from perdure.edges.blobs import LocalBlobs
from perdure.errors import StorageFailed, UnreadableFile, UsageError
from perdure.kernel.io import IoPolicy

T = TypeVar("T")


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "evidence", IoPolicy(virtual=True))


def now(call: Callable[[bytes | str], Awaitable[T]], argument: bytes | str) -> T:
    return anyio.run(call, argument)


def files(blobs: LocalBlobs) -> list[Path]:
    return [path for path in blobs.root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("virtual", [True, False])
@pytest.mark.parametrize("data", [b"output", b"long" * 500_000])
def test_what_was_put_comes_back_under_its_hash(
    tmp_path: Path, backend: str, virtual: bool, data: bytes
) -> None:
    blobs = LocalBlobs(tmp_path, IoPolicy(virtual=virtual))

    async def main() -> tuple[str, bytes]:
        digest = await blobs.put(data)
        return digest, await blobs.get(digest)

    assert anyio.run(main, backend=backend) == (hashlib.sha256(data).hexdigest(), data)


def test_the_same_bytes_are_stored_once(blobs: LocalBlobs) -> None:
    first, second = now(blobs.put, b"x"), now(blobs.put, b"x")
    assert first == second
    assert files(blobs) == [blobs.path(first)]


def test_damaged_bytes_are_never_handed_out_and_a_new_put_heals_them(blobs: LocalBlobs) -> None:
    digest = now(blobs.put, b"good")
    blobs.path(digest).write_bytes(b"evil")
    with pytest.raises(UnreadableFile, match="damaged"):
        now(blobs.get, digest)
    now(blobs.put, b"good")
    assert now(blobs.get, digest) == b"good"


def test_what_is_missing_or_no_hash_gets_one_clear_line(blobs: LocalBlobs) -> None:
    with pytest.raises(UnreadableFile, match="missing"):
        now(blobs.get, "0" * 64)
    for wrong in ("", "../../x", "ABCDEF" * 11, "0" * 63 + "\n"):
        with pytest.raises(UsageError) as told:
            now(blobs.get, wrong)
        assert "\n" not in str(told.value)


def test_a_write_that_fails_leaves_nothing(blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(old: object, new: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(StorageFailed, match="space"):
        now(blobs.put, b"x")
    assert files(blobs) == []
