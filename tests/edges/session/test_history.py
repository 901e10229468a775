"""What left the view is found again by one search: by id, by name, by the words around a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers_messages import call, items, result, says, user
from perdure.context.compaction.identifiers import collect
from perdure.context.compaction.redact import redact
from perdure.context.tokens.estimator import Estimator
from perdure.edges.session import lines
from perdure.edges.session.history import History
from perdure.records import Items

PLAIN = Estimator()


def stored(path: Path, view: Items) -> History:
    rows, parent = [lines.header_line("s1", 0, "/w")], None
    for item in view:
        rows.append(lines.message_line(item.entry, parent, 0, item.message))
        parent = item.entry
    path.write_bytes(b"".join(rows))
    return History(path)


SECRETS = [
    "sk-ant-api03-abcdefghijklmnopqrst", "ghp_abcdefghijklmnopqrst1234", "api_key=hunter2hunter2",
    "postgres://bob:s3cretpw@db:5432/x", "密码：correcthorse",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_that_a_summary_left_out_is_found_by_what_stands_there_instead(
    secret: str, tmp_path: Path
) -> None:
    said = f"for the staging host use {secret} and nothing else"
    past = stored(tmp_path / "s.jsonl", items(user("hello"), user(said), says("noted")))
    told = redact(said)
    assert told != said
    (found,) = past.search(told, 10).splitlines()
    assert found.startswith("e2 ")
    assert secret not in found  # the list shows what a summary shows; the entry is whole
    assert secret in past.text("e2")
    assert past.search("[redacted]", 10).startswith("e2 ")
    assert "e2 " in past.search("staging host", 10)


def test_one_search_finds_every_name_that_had_no_room(tmp_path: Path) -> None:
    names = [f"/srv/数据/run-{n}/out.{n}.log" for n in range(400)]
    windows = '{"path":"C:\\\\Users\\\\bob\\\\file 7.txt","note":"say \\"go\\" to pod-1234567"}'
    view = items(
        user("start"),
        *[
            message
            for n, name in enumerate(names)
            for message in (says(call(f"c{n}")), result(f"c{n}", name))
        ],
        says(call("w", arguments=windows)),
    )
    past = stored(tmp_path / "s.jsonl", view)
    every = collect(view, "", budget=1_000_000, estimator=PLAIN).carried
    some = collect(view, "", budget=200, estimator=PLAIN)
    assert set(names) < set(every)
    assert "C:\\Users\\bob\\file 7.txt" in every
    assert 0 < len(some.carried) < len(every)
    left = [name for name in every if name not in some.carried]
    for name in (*left[:: len(left) // 40], "C:\\Users\\bob\\file 7.txt"):
        assert past.search(name, 1), name
