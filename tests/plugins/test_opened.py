"""A plugin's database that is opened at its first use."""

from __future__ import annotations

from pathlib import Path

from perdure.plugins.opened import Opened

SCHEMA = "create table notes (text text) strict;"


def test_where_its_file_went_away_it_opens_a_new_one(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "a.sqlite", [SCHEMA], sync=False)
    for _ in range(2):
        with opened.writing() as db:
            db.execute("insert into notes values ('kept')")
        (tmp_path / "a.sqlite").unlink()
    with opened.writing() as db:
        db.execute("insert into notes values ('new')")
    opened.close()
    again = Opened(tmp_path / "a.sqlite", [SCHEMA], sync=False)
    with again.reading() as db:
        assert db.execute("select text from notes").fetchall() == [("new",)]
    again.close()
