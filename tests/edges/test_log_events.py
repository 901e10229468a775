"""Every event that the code logs is listed once, by a plain name, with a line that says what it means."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from perdure.edges.log import UNLISTED, memory_log
from perdure.edges.log_events import EVENTS
from perdure.kernel.jobs import running

ROOT = Path(__file__).parents[2]
METHODS = {"debug", "info", "warning", "error"}
PUT_TOGETHER = {  # by `graded`
    "actors/perdure/hosting/running.py",
    "actors/perdure/actors/session.py",
    "actors/perdure/cli/desks.py",
}


def sources(*folders: str) -> Iterator[tuple[str, ast.AST]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def is_log(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.lstrip("_") in ("log", "level")


def logged() -> Iterator[tuple[str, str, ast.expr]]:
    """(file, method, first argument) of each call of a log; what plugins say is all `plugin.told`."""
    for path, tree in sources("actors", "runtime"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called, method = node.func, ""
            if (
                isinstance(called, ast.Attribute)
                and called.attr in METHODS | {"graded"}
                and is_log(called.value)
            ):
                method = called.attr
            elif is_log(called):
                method = "log"
            if method and not path.endswith("edges/log.py") and "context/" not in path:
                yield path, method, node.args[0]


def constants(call: str) -> set[str]:
    """First string arguments of calls of a method of that name."""
    found = set()
    for _, tree in sources("actors", "runtime"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                named = node.func.attr.lstrip("_") == call
                if named and isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.add(first.value)
    return found


def names() -> set[str]:
    plain = {a.value for _, _, a in logged() if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    quiet = constants("quietly")
    notices = {f"session.{kind}" for kind in constants("notice") | constants("do")}
    kernel = {f"kernel.{name}" for name in constants("report") if re.fullmatch(r"[a-z]+\.[a-z_]+", name)}
    return (
        plain | quiet | notices | kernel | {"model.paused", "context.pruned", "context.shortened", UNLISTED}
    )


def test_every_logged_event_is_listed_and_nothing_listed_is_logged_nowhere() -> None:
    found = names()
    assert found - set(EVENTS) == set()
    assert set(EVENTS) - found - {"config.reloaded", "config.refused"} == set()


def test_no_event_has_a_name_that_is_put_together_where_nobody_looks() -> None:
    for path, method, name in logged():
        if not isinstance(name, ast.Constant):
            assert method in ("graded",) or path.endswith("furnish.py"), (path, ast.unparse(name))
            assert not isinstance(name, ast.JoinedStr) or path in PUT_TOGETHER, path


def test_names_are_nouns_and_verbs_each_with_a_line_of_its_own() -> None:
    assert all(re.fullmatch(r"[a-z_]+(\.[a-z_]+){1,2}", name) for name in EVENTS)
    meanings = [meaning for _, meaning in EVENTS.values()]
    assert len(set(meanings)) == len(meanings)
    listed = (ROOT / "runtime/perdure/edges/log_events.py").read_text()
    assert all(listed.count(f'"{name}"') == 1 for name in EVENTS)


def test_events_are_counted_whatever_the_level_and_unknown_names_as_one() -> None:
    log = memory_log([], level="error")
    for name in ("tool.failed", "tool.failed", "made.up", "made.up_too"):
        log.bind(session="s").info(name)
    assert dict(log.counts) == {"tool.failed": 2, UNLISTED: 2}


def test_what_is_logged_in_a_job_says_whose_job_it_is() -> None:
    expected = {
        "agent:main:cli:dm:me#12": {"session": "agent:main:cli:dm:me", "turn": 12},
        "agent:main:cli:dm:me#12.toolu_1/0": {"session": "agent:main:cli:dm:me", "turn": 12},
        "agent:main:cli:dm:me#open": {"session": "agent:main:cli:dm:me", "job": "open"},
        "compaction:agent:main:cli:dm:me": {"session": "agent:main:cli:dm:me", "worker": "compaction"},
        "upkeep": {},
    }
    for key, fields in expected.items():
        lines: list[bytes] = []
        token = running.set(key)
        memory_log(lines).info("turn.crashed")
        running.reset(token)
        assert ast.literal_eval(lines[0].decode()) == {"level": "info", "event": "turn.crashed"} | fields
