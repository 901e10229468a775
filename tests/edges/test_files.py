import os

import anyio
import pytest

from perdure.edges.files import read_bytes, write_bytes
from perdure.kernel.io import IoPolicy

both = pytest.mark.parametrize("backend", ["asyncio", "trio"])
policies = pytest.mark.parametrize("virtual", [True, False])


@both
@policies
def test_a_whole_file_is_written_and_read_on_either_loop(tmp_path, backend, virtual):
    io, path = IoPolicy(virtual=virtual), tmp_path / "note.md"

    async def main():
        await write_bytes(path, b"one", io)
        await write_bytes(path, b"two", io)
        return await read_bytes(path, io)

    assert anyio.run(main, backend=backend) == b"two"
    assert os.listdir(tmp_path) == ["note.md"]
    assert path.stat().st_mode & 0o777 == 0o600


@both
@policies
def test_a_missing_file_is_the_systems_own_error(tmp_path, backend, virtual):
    with pytest.raises(FileNotFoundError):
        anyio.run(read_bytes, tmp_path / "missing", IoPolicy(virtual=virtual), backend=backend)


def test_replacing_keeps_the_rights_of_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(0o644)
    anyio.run(write_bytes, path, b"new", IoPolicy(virtual=True))
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o644)


@policies
def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(tmp_path, virtual, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def broken(old, new):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(OSError, match="Input"):
        anyio.run(write_bytes, path, b"new", IoPolicy(virtual=virtual))
    assert os.listdir(tmp_path) == ["x"]
    assert path.read_bytes() == b"old"
