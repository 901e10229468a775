"""`perdure sessions search`: where something was said, in all sessions of a state folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.cli import folder as looking
from perdure.cli.output import emit, fail, one_line, say, warn
from perdure.context.text.plural import counted
from perdure.edges.session import keys
from perdure.edges.session.searching import Hit, Sought, search
from perdure.errors import PerdureError
from perdure.looking.target import existing

Found = list[tuple[str | None, Hit]]


def run(text: str, *, limit: int, agent: str | None, state: Path | None, as_json: bool) -> int:
    """Exit 0 if it was found, 1 if not."""
    if not text.strip():
        fail("the text is empty: say what to look for")
    if limit < 1:
        fail(f"--limit {limit}: a number of places from 1 on")
    rows = [row for row in looking.rows(existing(state)) if agent is None or _agent(row) == agent]
    every = [each for row in rows for each in (row, *looking.put_aside(row))]
    found, total, problems = _search(every, Sought(text), limit)
    if as_json:
        hits = [_dict(key, hit) for key, hit in found]
        emit({"text": text, "total": total, "files": len(every), "hits": hits, "problems": problems})
    else:
        _print(found)
    for problem in problems:
        warn(f"perdure: not searched: {problem['detail']}")
    if total > len(found):
        warn(f"perdure: not shown: {counted(total - len(found), 'older place')} (--limit)")
    return 0 if total else 1


def _agent(row: looking.Row) -> str | None:
    return None if row.key is None else keys.agent_of(row.key)


def _search(rows: list[looking.Row], sought: Sought, limit: int) -> tuple[Found, int, list[dict[str, Any]]]:
    found: Found = []
    total, problems = 0, []
    for row in rows:
        try:
            hits, count = search(Path(row.path), sought, max(1, limit - len(found)))
        except (PerdureError, OSError) as error:
            detail = str(error) if isinstance(error, PerdureError) else f"{row.path}: {error.strerror}"
            problems.append({"kind": "unreadable", "file": row.path, "detail": detail})
            continue
        total += count
        found += [(row.key, hit) for hit in hits[: limit - len(found)]]
    return found, total, problems


def _dict(key: str | None, hit: Hit) -> dict[str, Any]:
    return {
        "key": key,
        "entry": hit.entry,
        "file": hit.file,
        "segment": hit.segment or None,
        "who": hit.who,
        "timestamp": hit.timestamp,
        "snippet": hit.snippet,
        "secret": hit.secret,
    }


def _print(found: Found) -> None:
    last = None
    for key, hit in found:
        name = key or hit.file
        if name != last:
            say(f"{'' if last is None else chr(10)}{one_line(name)}")
            last = name
        marked = " (looks like a secret)" if hit.secret else ""
        say(f"  {one_line(hit.entry)}  {hit.timestamp[:19]:19}  {one_line(hit.snippet, 400)}{marked}")
