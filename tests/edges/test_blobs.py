import hashlib
import os

import anyio
import pytest

from perdure.edges.blobs import LocalBlobs
from perdure.errors import StorageFailed, UnreadableFile, UsageError
from perdure.kernel.io import IoPolicy


@pytest.fixture
def blobs(tmp_path):
    return LocalBlobs(tmp_path / "evidence", IoPolicy(virtual=True))


def files(blobs):
    return [path for path in blobs.root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("virtual", [True, False])
def test_what_was_put_comes_back_under_its_hash(tmp_path, backend, virtual):
    blobs = LocalBlobs(tmp_path, IoPolicy(virtual=virtual))

    async def main():
        digest = await blobs.put(b"output")
        return digest, await blobs.get(digest)

    digest, data = anyio.run(main, backend=backend)
    assert (digest, data) == (hashlib.sha256(b"output").hexdigest(), b"output")


def test_the_same_bytes_are_stored_once(blobs):
    first, second = blobs.put_now(b"x"), blobs.put_now(b"x")
    assert first == second
    assert files(blobs) == [blobs.path(first)]
    assert list(blobs.sizes()) == [(first, 1)]


def test_damaged_bytes_are_never_handed_out_and_a_new_put_heals_them(blobs):
    digest = blobs.put_now(b"good")
    blobs.path(digest).write_bytes(b"evil")
    with pytest.raises(UnreadableFile, match="damaged"):
        blobs.get_now(digest)
    blobs.put_now(b"good")
    assert blobs.get_now(digest) == b"good"


def test_what_is_missing_or_no_hash_gets_one_clear_line(blobs):
    with pytest.raises(UnreadableFile, match="missing"):
        blobs.get_now("0" * 64)
    for wrong in ("", "../../x", "ABCDEF" * 11, "0" * 63 + "\n"):
        with pytest.raises(UsageError) as told:
            blobs.get_now(wrong)
        assert "\n" not in str(told.value)


def test_removing_says_what_it_freed(blobs):
    digest = blobs.put_now(b"four")
    assert blobs.has(digest)
    assert (blobs.remove(digest), blobs.remove(digest), blobs.has(digest)) == (4, 0, False)


def test_a_write_that_fails_leaves_nothing(blobs, monkeypatch):
    def full(old, new):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageFailed, match="space"):
        blobs.put_now(b"x")
    assert files(blobs) == []
