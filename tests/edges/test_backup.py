"""Backups: consistent while a host runs, verified to the byte, restored whole or not at all."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from helpers_cli import failed, fingerprint, run
from helpers_host import (
    KEY,
    Gate,
    Play,
    ask,
    calls,
    hosted,
    real,
    said_by_users,
    session_path,
    tells,
    virtual,
)
from helpers_sessions import assistant, compaction, user, write
from perdure.edges import backup
from perdure.edges.backup import back_up
from perdure.edges.models.reply import say
from perdure.edges.restoring import restore
from perdure.edges.session.history import History
from perdure.edges.session.load import load
from perdure.edges.session.swap import finish
from perdure.edges.session.tail import open_session
from perdure.edges.state import StateFolder
from perdure.errors import StorageFailed, UnreadableFile, UsageError
from perdure.kernel.clock import RealClock
from perdure.kernel.virtual import VirtualClock
from perdure.records import Text, User

NOW = 1_790_000_000_000
OTHER = "agent:main:cli:dm:other"
TWICE = (
    user("e1", None, "first question"),
    assistant("e2", "e1", "first answer"),
    user("e3", "e2", "second question"),
    assistant("e4", "e3", "second answer"),
    compaction("e5", "e4", "e3"),
    user("e6", "e5", "third question"),
    assistant("e7", "e6", "third answer"),
    compaction("e8", "e7", "e6"),
    user("e9", "e8", "fourth question"),
    assistant("f1", "e9", "fourth answer"),
)


def folder_of(tmp_path: Path) -> StateFolder:
    return StateFolder(str(tmp_path / "state"))


def filled(tmp_path: Path) -> StateFolder:
    """A state folder with sessions, evidence and a configuration, stopped."""

    async def main(clock: VirtualClock) -> None:
        play = Play(calls("dump"), say("noted"))
        async with hosted(tmp_path, play, clock, tools=[tells("dump", "x" * 300_000)]) as host:
            await ask(host, "one")
            await host.command(KEY, "/new")
            await ask(host, "two")
            await ask(host, "three", OTHER)

    virtual(main)
    (tmp_path / "state" / "perdure.toml").write_text("[log]\nlevel = 'info'\n")
    return folder_of(tmp_path)


def test_a_restored_folder_holds_every_byte_and_goes_on(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    before = fingerprint(folder.path)
    out, new = tmp_path / "out.zip", tmp_path / "new" / "state"
    done = back_up(folder, out, NOW)
    assert fingerprint(folder.path) == before
    assert not done.problems
    assert out.stat().st_mode & 0o077 == 0
    new.parent.mkdir()
    restored = restore(out, new, NOW)
    assert restored.waiting == restored.interrupted == ()
    for member in done.manifest.files:
        assert (new / member.path).read_bytes() == (folder.path / member.path).read_bytes()
        assert (new / member.path).stat().st_mtime_ns == (folder.path / member.path).stat().st_mtime_ns
    kinds = {member.path.split("/")[0] for member in done.manifest.files}
    assert kinds == {"sessions", "evidence", "perdure.toml"}

    async def goes_on(clock: VirtualClock) -> None:
        async with hosted(tmp_path / "new", Play(), clock) as host:
            assert (await ask(host, "four")).text == "ok 1"
            assert host.placement.grant(0).token > restored.epoch > NOW // 1000 - 1  # type: ignore[union-attr]

    virtual(goes_on)
    assert said_by_users(session_path(tmp_path / "new")) == ["two", "four"]


def test_what_waits_in_a_backup_of_a_running_host_is_not_answered_twice(tmp_path: Path) -> None:
    out, new = tmp_path / "out.zip", tmp_path / "copy" / "state"
    new.parent.mkdir()

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        async with hosted(tmp_path, Play(gate), clock) as host:
            await host.send(KEY, "first", mid="m1")
            await gate.arrived()
            await host.send(KEY, "second", mid="m2")
            back_up(folder_of(tmp_path), out, NOW)
            gate.open()
        play = Play()
        restored = restore(out, new, NOW)
        assert [(each.sender, each.mid) for each in restored.waiting] == [("user", "m2")]
        assert restored.interrupted == (KEY,)
        async with hosted(tmp_path / "copy", play, clock) as copy:
            repeated = await copy.send(KEY, "second", mid="m2")
            assert repeated.receipt.repeated
            await clock.sleep(100)
            assert not play.bodies[KEY]
            await ask(copy, "third", mid="m3")
        assert said_by_users(session_path(tmp_path / "copy")) == ["first", "third"]

    virtual(main)


def test_what_waits_is_answered_where_the_original_is_gone(tmp_path: Path) -> None:
    out, new = tmp_path / "out.zip", tmp_path / "copy" / "state"
    new.parent.mkdir()

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        async with hosted(tmp_path, Play(gate), clock) as host:
            await host.send(KEY, "first")
            await gate.arrived()
            await host.send(KEY, "second")
            back_up(folder_of(tmp_path), out, NOW)
            gate.open()
        restore(out, new, NOW, answer=True)
        async with hosted(tmp_path / "copy", Play(), clock) as copy:
            await ask(copy, "third")
        assert said_by_users(session_path(tmp_path / "copy")) == ["first", "second", "third"]

    virtual(main)


def test_a_truncation_in_the_middle_of_a_backup_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session_path(tmp_path)
    path.parent.mkdir(parents=True)
    write(path, TWICE)
    whole = {node.id for node in load(path).nodes}
    found = backup.segments.segments_of

    def meanwhile(session: Path) -> tuple[Path, ...]:
        monkeypatch.undo()
        listed = found(session)  # what is there now; the file is open already
        assert run("truncate", KEY, "--state", tmp_path / "state").code == 0
        assert run("truncate", KEY, "--discard-segments", "--state", tmp_path / "state").code == 0
        return listed

    monkeypatch.setattr(backup.segments, "segments_of", meanwhile)
    back_up(folder_of(tmp_path), tmp_path / "out.zip", NOW)
    restore(tmp_path / "out.zip", tmp_path / "new", NOW)
    made = tmp_path / "new" / path.relative_to(tmp_path / "state")
    assert {node.id for node in load(made).nodes} == whole


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = session_path(tmp_path)
    path.parent.mkdir(parents=True)
    write(path, [user("a", None)])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"message","id":"b')
    back_up(folder_of(tmp_path), tmp_path / "out.zip", NOW)
    restore(tmp_path / "out.zip", tmp_path / "new", NOW)
    made = (tmp_path / "new" / path.relative_to(tmp_path / "state")).read_bytes()
    assert made.startswith(whole)
    assert b'"b' not in made[len(whole) : len(whole) + 40]


def test_an_interrupted_swap_is_completed_in_the_copy(tmp_path: Path) -> None:
    path = session_path(tmp_path)
    path.parent.mkdir(parents=True)
    write(path, [user("a", None)])
    base = path.stat().st_size
    old = path.with_name(f"{path.name}.old")
    old.write_bytes(path.read_bytes() + write(tmp_path / "late", [user("b", "a")], header=None).read_bytes())
    os.symlink(f"{base:x}.{base:x}", path.with_name(f"{path.name}.swap"))
    back_up(folder_of(tmp_path), tmp_path / "out.zip", NOW)
    restore(tmp_path / "out.zip", tmp_path / "new", NOW)
    assert [item.entry for item in open_session(session_path(tmp_path)).items] == ["a"]
    made = tmp_path / "new" / path.relative_to(tmp_path / "state")

    async def main(clock: VirtualClock) -> None:
        (tmp_path / "new").rename(tmp_path / "again")
        (tmp_path / "new").mkdir()
        (tmp_path / "again").rename(tmp_path / "new" / "state")
        async with hosted(tmp_path / "new", Play(), clock) as host:
            await ask(host, "c")

    virtual(main)
    assert not made.exists()
    ids = [item.entry for item in open_session(session_path(tmp_path / "new")).items]
    assert ids[:2] == ["a", "b"]


# --- damage ---------------------------------------------------------------------------------------


def edited(out: Path, name: str, data: bytes) -> None:
    """The same bundle with other bytes in one file, its own checksums right."""
    with zipfile.ZipFile(out) as old:
        rows = [(info, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(out, "w") as new:
        for info, raw in rows:
            new.writestr(info, data if info.filename == name else raw)


def test_an_edited_file_is_named_and_nothing_is_restored(tmp_path: Path) -> None:
    folder, out = filled(tmp_path), tmp_path / "out.zip"
    manifest = back_up(folder, out, NOW).manifest
    name = next(member.path for member in manifest.files if member.path.endswith(".jsonl"))
    edited(out, name, b"{}\n")
    with pytest.raises(UnreadableFile) as caught:
        restore(out, tmp_path / "new", NOW)
    assert name in str(caught.value)
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "new.restoring").exists()
    assert name in failed(run("restore", out, "--state", tmp_path / "new"))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.999])
def test_a_torn_backup_names_what_is_lost(share: float, tmp_path: Path) -> None:
    folder, out = filled(tmp_path), tmp_path / "out.zip"
    manifest = back_up(folder, out, NOW).manifest
    data = out.read_bytes()
    out.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UnreadableFile, match="torn") as caught:
        restore(out, tmp_path / "new", NOW)
    last = manifest.files[-1].path
    assert last in str(caught.value) or "manifest" in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_flipped_byte_anywhere_is_noticed(tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    back_up(filled(tmp_path), out, NOW)
    whole = out.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        out.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            done = restore(out, tmp_path / "new", NOW)
        except (UnreadableFile, UsageError):
            assert not (tmp_path / "new").exists()
            continue
        for member in done.manifest.files:  # the byte was in nobody's content: a date, an attribute
            assert (tmp_path / "new" / member.path).read_bytes() == (
                tmp_path / "state" / member.path
            ).read_bytes()
        (tmp_path / "new").rename(tmp_path / f"new{at}")


def test_noise_and_paths_that_lead_out_are_refused(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"noise" * 100)
    with pytest.raises(UnreadableFile, match="no bundle"):
        restore(tmp_path / "noise", tmp_path / "new", NOW)
    out = tmp_path / "out.zip"
    manifest = back_up(filled(tmp_path), out, NOW).manifest
    with zipfile.ZipFile(out) as bundle:
        raw = bundle.read("manifest.json")
    edited(out, "manifest.json", raw.replace(manifest.files[0].path.encode(), b"../evil"))
    with pytest.raises(UnreadableFile, match="no path inside"):
        restore(out, tmp_path / "new", NOW)
    assert not (tmp_path.parent / "evil").exists()


def test_a_folder_that_holds_something_is_never_restored_into(tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    folder = filled(tmp_path)
    back_up(folder, out, NOW)
    before = fingerprint(folder.path)
    with pytest.raises(UsageError, match="isn't empty"):
        restore(out, folder.path, NOW)
    assert fingerprint(folder.path) == before
    (tmp_path / "new").mkdir()
    assert restore(out, tmp_path / "new", NOW).manifest.files
    assert "itself" in failed(run("backup", folder.path / "out.zip", "--state", folder.path))
    assert "exists" in failed(run("backup", out, "--state", folder.path))


def test_a_restoring_that_was_cut_off_goes_on_with_what_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, temp = tmp_path / "out.zip", tmp_path / "new.restoring"
    manifest = back_up(filled(tmp_path), out, NOW).manifest
    monkeypatch.setattr("os.rename", _full)
    with pytest.raises(StorageFailed, match="repeat"):
        restore(out, tmp_path / "new", NOW)
    monkeypatch.undo()
    first, second = (temp / member.path for member in manifest.files[:2])
    kept = first.stat().st_ino
    second.write_bytes(b"half")
    (temp / "sessions" / "stranger.jsonl").write_bytes(b"of another backup")
    restore(out, tmp_path / "new", NOW)
    assert (tmp_path / "new" / manifest.files[0].path).stat().st_ino == kept
    assert not (tmp_path / "new" / "sessions" / "stranger.jsonl").exists()
    assert not temp.exists()


def test_a_full_disk_leaves_no_half_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled(tmp_path)
    monkeypatch.setattr("os.fsync", _full)
    with pytest.raises(StorageFailed, match="make room"):
        back_up(folder, tmp_path / "out.zip", NOW)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []


def _full(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_swap_that_ends_while_its_files_are_opened_costs_the_session_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session_path(tmp_path)
    path.parent.mkdir(parents=True)
    write(path, [user("a", None), assistant("b", "a")])
    found, vanished = backup._segments, [tmp_path / "gone", None]

    def once(file: Path, late: list[Path]) -> list[Path]:
        gone = vanished.pop(0) if vanished else None
        return [*found(file, late), *([gone] if gone is not None else [])]

    monkeypatch.setattr(backup, "_segments", once)
    back_up(folder_of(tmp_path), tmp_path / "out.zip", NOW)
    restore(tmp_path / "out.zip", tmp_path / "again" / "state", NOW)
    assert session_path(tmp_path / "again").exists()


def test_backups_under_load_hold_whatever_was_acknowledged_before_them(tmp_path: Path) -> None:
    keys = [f"agent:main:cli:dm:s{n}" for n in range(4)]
    acknowledged: dict[str, list[str]] = {key: [] for key in keys}
    taken: list[dict[str, list[str]]] = []

    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock(), truncate_after=2_000) as host:
            done = anyio.Event()

            async def talk(key: str) -> None:
                n = 0
                while not done.is_set():
                    sent = await host.send(key, f"{key} {n} {'x' * 500}")
                    acknowledged[key].append(f"{n}")
                    n += 1
                    await sent.reply(20)
                    if n % 5 == 0:
                        await host.command(key, "/compact")

            async with anyio.create_task_group() as group:
                for key in keys:
                    group.start_soon(talk, key)
                for n in range(4):
                    taken.append({key: list(told) for key, told in acknowledged.items()})
                    await anyio.to_thread.run_sync(back_up, folder_of(tmp_path), tmp_path / f"{n}.zip", NOW)
                done.set()

    real(main)
    for n, before in enumerate(taken):
        restore(tmp_path / f"{n}.zip", tmp_path / f"r{n}" / "state", NOW)
        for key, told in before.items():
            path = session_path(tmp_path / f"r{n}", key)
            if not told:
                continue
            finish(path, sync=False)  # as the next host does: late lines of a swap lie beside it
            history = History(path)
            # In the order of the branch: an anchor stays in the file when later entries have moved.
            branch = [item.message for item in history.messages("", 100_000)]
            said = [text_of(each).split()[1] for each in branch if isinstance(each, User)]
            assert said[: len(told)] == told
            assert len(set(said)) == len(said)


def text_of(message: User) -> str:
    return "".join(block.text for block in message.content if isinstance(block, Text))
