import errno
import os
import sqlite3
import threading

import apsw
import pytest

from perdure.edges import disk, sqlite
from perdure.errors import DamagedStore, NewerState, StorageFailed

SCHEMA = "create table notes (id integer primary key, text text) strict;"
LATER = """
select 1;
alter table notes add column trust text default 'agent';
create index by_trust on notes (trust);
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plugin.sqlite"


@pytest.fixture
def database(path):
    made = sqlite.Database(path, migrations=[SCHEMA], sync=False)
    yield made
    made.close()


def count(database):
    with database.reading() as db:
        return db.execute("select count(*) from notes").get


def test_a_connection_has_a_log_a_timeout_and_foreign_keys(path):
    db = sqlite.open(path)
    assert db.pragma("journal_mode") == "wal"
    assert (db.pragma("foreign_keys"), db.pragma("secure_delete")) == (1, 1)
    assert db.pragma("busy_timeout") == sqlite.BUSY_MS
    sqlite.close(db)


def test_the_files_are_for_their_owner_alone(database, path):
    with database.writing() as db:
        db.execute("insert into notes (text) values ('x')")
    assert {os.stat(f"{path}{end}").st_mode & 0o777 for end in ("", "-wal", "-shm")} == {0o600}


def test_vectors_are_there_on_request_only(path):
    db = sqlite.open(path, vectors=True)
    assert db.execute("select vec_length(vec_f32('[1, 2]'))").get == 2
    with pytest.raises(apsw.SQLError):
        sqlite.open(path).execute("select vec_version()")
    with pytest.raises(apsw.SQLError):  # and no statement can load another extension
        db.execute("select load_extension('x')")


def test_each_migration_runs_once_and_new_ones_follow(path):
    sqlite.Database(path, migrations=[SCHEMA]).close()
    for _ in range(2):
        database = sqlite.Database(path, migrations=[SCHEMA, LATER])
        with database.writing() as db:
            db.execute("insert into notes (text) values ('a')")
            assert db.pragma("user_version") == 2
        database.close()
    assert count(sqlite.Database(path, migrations=[SCHEMA, LATER])) == 2


def test_a_migration_that_fails_leaves_the_schema_before_it(path):
    with pytest.raises(apsw.SQLError):
        sqlite.open(path, migrations=[SCHEMA, "create table more (x); nonsense;"])
    db = sqlite.open(path)
    assert (db.pragma("user_version"), db.execute("select count(*) from sqlite_master").get) == (0, 0)


def test_a_newer_schema_is_refused_and_untouched(path):
    sqlite.close(sqlite.open(path, migrations=[SCHEMA, LATER]))
    before = path.read_bytes()
    with pytest.raises(NewerState, match="schema version 2, this perdure knows up to 1"):
        sqlite.open(path, migrations=[SCHEMA])
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_refused(path):
    with sqlite3.connect(path) as other:
        other.execute("create table theirs (x)")
    other.close()
    with pytest.raises(DamagedStore, match="of another program"):
        sqlite.open(path, migrations=[SCHEMA])


def test_a_file_that_is_no_database_is_told_kept_and_moved_only_when_asked(path):
    path.write_bytes(b"not a database, but somebody's text" * 100)
    before = path.read_bytes()
    with pytest.raises(DamagedStore, match=r"plugin\.sqlite: .*move it aside"):
        sqlite.open(path, migrations=[SCHEMA])
    assert path.read_bytes() == before
    kept = sqlite.set_aside(path)
    assert kept.read_bytes() == before
    assert not path.exists()
    path.write_bytes(b"again no database, whatever it is" * 100)
    assert sqlite.set_aside(path) != kept
    assert count(sqlite.Database(path, migrations=[SCHEMA])) == 0


def test_damage_in_the_middle_is_told_when_it_is_met(database, path):
    with database.writing() as db:
        db.executemany("insert into notes (text) values (?)", (("x" * 3_000,) for _ in range(50)))
    database.close()
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * 40_960)
    with pytest.raises(DamagedStore, match="move it aside"):
        count(sqlite.Database(path, migrations=[SCHEMA]))


def _gone(path):
    path.unlink()


def _replaced(path):
    path.rename(f"{path}.old")
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_gone, _replaced])
def test_a_database_whose_file_went_away_under_it_says_so_and_begins_anew(database, path, harm):
    with database.writing() as db:
        db.execute("insert into notes (text) values ('one')")
    other = sqlite.Database(path, migrations=[SCHEMA], sync=False)
    other.close()
    harm(path)
    with pytest.raises(DamagedStore, match=r"plugin\.sqlite: .*move it aside"):  # noqa: PT012
        with database.writing() as db:
            db.execute("insert into notes (text) values ('two')")
        count(database)
    database.close()
    sqlite.set_aside(path)
    assert count(sqlite.Database(path, migrations=[SCHEMA], sync=False)) == 0


def test_a_write_is_whole_or_not_at_all(database):
    def half():
        with database.writing() as db:
            db.execute("insert into notes (text) values ('half')")
            raise ValueError

    with pytest.raises(ValueError):
        half()
    assert count(database) == 0


def test_a_full_disk_is_told_with_the_path_and_leaves_what_was_there(database, path):
    with database.writing() as db:
        db.execute("insert into notes (text) values ('kept')")
        pages = db.pragma("page_count")
        db.pragma("max_page_count", pages)

    def too_much():
        with database.writing() as db:
            db.execute("insert into notes (text) values (?)", ("x" * 100_000,))

    with pytest.raises(StorageFailed, match=r"plugin\.sqlite: .*full.*make room"):
        too_much()
    assert count(database) == 1


def test_an_injected_fault_stops_a_write_before_it_begins(database, path):
    def fault(op, where):
        if op == "write" and where == os.fspath(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), where)

    def write():
        with database.writing() as db:
            db.execute("insert into notes (text) values ('x')")

    with disk.faults(fault), pytest.raises(StorageFailed, match="Input/output error"):
        write()
    assert count(database) == 0


def test_a_folder_that_is_missing_is_the_disks_fault(tmp_path):
    with pytest.raises(StorageFailed, match="No such file or directory"):
        sqlite.open(tmp_path / "none" / "plugin.sqlite")


def test_a_database_that_another_holds_is_told_after_the_timeout(database, path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_MS", 1)
    with database.writing(), pytest.raises(StorageFailed, match="locked"):
        sqlite.open(path, migrations=[SCHEMA, LATER])


def test_threads_take_turns(database):
    def write():
        for _ in range(50):
            with database.writing() as db:
                db.execute("insert into notes (text) values ('x')")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(database) == 200


def test_what_was_deleted_leaves_no_byte_after_a_scrub(database, path):
    with database.writing() as db:
        rows = (("a secret " + "x" * 2_000,) for _ in range(20))
        db.executemany("insert into notes (text) values (?)", rows)
    with database.writing() as db:
        db.execute("delete from notes")
    database.scrub()
    assert not any(b"a secret" in each.read_bytes() for each in path.parent.iterdir())


def test_a_closed_database_says_so(database):
    database.close()
    database.close()
    with pytest.raises(StorageFailed, match="closed"):
        count(database)
