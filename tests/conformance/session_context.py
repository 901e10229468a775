"""Session files: what is read from one, what operations write, how damage is mended."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from conformance.messages import decoded
from conformance.rules import Case, Departure, Function, fails, has_error, holds, same
from conformance.session_ops import replayed
from perdure.edges.session import lines
from perdure.edges.session.facts import Checkpoint, Opened
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.mend import mend
from perdure.edges.session.tail import open_session
from perdure.errors import UnreadableFile
from perdure.records import (
    Assistant,
    BranchSummary,
    Custom,
    Item,
    Message,
    Summary,
    ToolResult,
    Usage,
    User,
)

ROLES: dict[type, str] = {
    User: "user",
    Assistant: "assistant",
    ToolResult: "toolResult",
    Summary: "compactionSummary",
    BranchSummary: "branchSummary",
    Custom: "custom",
}
NOW = 1_760_000_000_000


@contextmanager
def _file(text: str | None) -> Iterator[Path]:
    """A file that holds the text; no file where there is none. Reading it may change no byte."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vector.jsonl"
        if text is not None:
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        yield path


def _values(text: str | None) -> list[Any]:
    """The JSON of every line that holds some."""
    found = []
    for row in (text or "").lstrip("\ufeff").split("\n"):
        try:
            found.append(json.loads(row))
        except ValueError:
            continue
    return found


def _records(text: str | None) -> list[dict[str, Any]]:
    """Entries, headers left out."""
    return [v for v in _values(text) if isinstance(v, dict) and v.get("type") != "session"]


def _headed(text: str | None) -> bool:
    first = next(iter(_values(text)), None)
    return isinstance(first, dict) and first.get("type") == "session" and isinstance(first.get("id"), str)


def _text(case: Case) -> str | None:
    text: str | None = case["input"]["file_text"]
    return text


# --- opening --------------------------------------------------------------------------------------


def _leaf(case: Case) -> str | None:
    """The leaf a case moves to, as the operations of the reference name it."""
    return (case["params"].get("leafOp") or {}).get("branch")


def _reset(case: Case) -> bool:
    return bool((case["params"].get("leafOp") or {}).get("reset"))


def _opened(case: Case) -> None:
    with _file(_text(case)) as path:
        if has_error(case):
            fails(lambda: load(path).view(_leaf(case)))
            return
        loaded = load(path)
        if _reset(case):
            same(loaded.graph.view(None).path, (), "a path to nowhere")
            return
        _same_view(case, loaded)


def _same_view(case: Case, loaded: Loaded) -> None:
    want, ours = case["expected"], _ids(case["expected"], loaded)
    leaf = None if (branched := _leaf(case)) is None else ours.get(branched, branched)
    seen, opened = loaded.view(leaf), loaded.opened(leaf)
    same(seen.leaf, ours.get(want["leafId"], want["leafId"]), "leaf")
    same([loaded.nodes[at].id for at in seen.path], [ours.get(id, id) for id in want["branch"]], "branch")
    same([item.message for item in opened.items], _messages(want["context"]), "messages")
    same(opened.settings.thinking, want["context"]["thinkingLevel"], "thinking level")
    model = want["context"]["model"] or {}
    same(_model(opened), (model.get("provider"), model.get("modelId")), "model")
    same(opened.name, want["sessionName"], "name")
    same(loaded.labels(), {ours.get(k, k): v for k, v in want["labels"].items()}, "labels")
    same(loaded.header.id, want["header"]["id"], "session id")
    listed = [(ours.get(entry["id"], entry["id"]), entry["type"]) for entry in want["entries"]]
    same([(node.id, node.type) for node in loaded.nodes], listed, "entries")
    if not branched:
        same(open_session(Path(loaded.path)), opened, "what the tail alone tells")


def _model(opened: Opened) -> tuple[str | None, str | None]:
    return opened.settings.provider, opened.settings.model


def _ids(want: dict[str, Any], loaded: Loaded) -> dict[str, str]:
    """Ids the reference made up for version 1, as ours (from byte offsets)."""
    if loaded.header.version >= 2:
        return {}
    return dict(zip((entry["id"] for entry in want["entries"]), (n.id for n in loaded.nodes), strict=True))


def _messages(context: dict[str, Any]) -> list[Message]:
    return [made for found in context["messages"] if (made := decoded(found)) is not None]


def _unchanged(case: Case) -> None:
    """Reading changes no byte, whatever it finds."""
    with _file(_text(case)) as path:
        try:
            load(path)
            open_session(path)
        except (UnreadableFile, KeyError):
            pass
        after = path.read_bytes().decode("utf-8", "surrogatepass") if path.exists() else None
        same(after, _text(case), "the file after reading")


def _refused_or_read(case: Case) -> None:
    """What is there is read; where nothing is, one line says so."""
    text = _text(case)
    with _file(text) as path:
        if not _records(text):
            try:
                load(path)
            except UnreadableFile as refused:
                holds(str(path) in str(refused) and "\n" not in str(refused), "one line names the file")
                return
            holds(False, "a file without a session is refused")
        loaded = load(path)
        same(loaded.problems[0].kind, "bad_header", "the problem that is told")
        same([node.id for node in loaded.nodes], [entry["id"] for entry in _records(text)], "entries")


def _costs_itself(case: Case) -> None:
    """The view is that of the file without lines that are none, idle entries in place of empty messages."""
    with _file(_text(case)) as path, _file(_without_bad_lines(_text(case))) as mended:
        opened, wanted = load(path).opened(), load(mended).opened()
        same([item.message for item in opened.items], [item.message for item in wanted.items], "messages")
        if _version(_text(case)) >= 2:
            same(
                [item.entry for item in opened.items], [i.entry for i in wanted.items], "entries in the view"
            )
        same(open_session(path), opened, "what the tail alone tells")


def _without_bad_lines(text: str | None) -> str:
    kept = []
    for value in _values(text):
        if isinstance(value, dict):
            empty = value.get("type") == "message" and not isinstance(value.get("message"), dict)
            kept.append(value | {"type": "custom", "customType": "idle"} if empty else value)
    return "".join(json.dumps(value) + "\n" for value in kept)


def _version(text: str | None) -> int:
    first = next(iter(_values(text)), {})
    return first.get("version") or 1 if isinstance(first, dict) else 1


def _missing(case: Case) -> set[str]:
    """Parents that stand nowhere, of entries at which the reference ends the branch."""
    by_id = {entry.get("id"): entry for entry in _records(_text(case))}
    branch = case["expected"].get("branch") or []
    parents = [by_id[id].get("parentId") for id in branch[:1] if id in by_id]
    return {parent for parent in parents if parent is not None and parent not in by_id}


def _bridged(case: Case) -> None:
    """History before a hole is shown, with a marker where the hole is."""
    missing, leaf = _missing(case), _leaf(case)
    with _file(_text(case)) as path:
        loaded = load(path)
        opened = loaded.opened(leaf)
        holds(leaf is not None or open_session(path) == opened, "the tail alone tells the same")
        if opened.compaction is not None and not opened.gaps:  # the hole lies in what the summary covers
            same([item.message for item in opened.items], _messages(case["expected"]["context"]), "messages")
            return
        holes = {gap.missing for gap in opened.gaps}
        same(missing - holes, set(), "holes that are not told")
        same(holes & {node.id for node in loaded.nodes}, set(), "holes that are none")
        for gap in opened.gaps:
            at = loaded.graph.by_id[gap.child]
            same(gap.bridged_to, loaded.nodes[at - 1].id if at else None, "where a hole is bridged to")
        kinds = [item.message.kind for item in opened.items if isinstance(item.message, Custom)]
        same(kinds.count("perdure.gap"), len(opened.gaps), "markers")


OPEN = Function(
    _opened,
    (
        Departure(
            "reading makes nothing up",
            "the reference makes up an empty session for a file that isn't there",
            lambda case: _text(case) is None,
            _refused_or_read,
        ),
        Departure(
            "a file without a header is read, or refused, never overwritten",
            "the reference puts an empty session in its place",
            lambda case: not _headed(_text(case)),
            _refused_or_read,
        ),
        Departure(
            "a line that is no entry costs itself",
            "the reference throws, or loses its leaf",
            lambda case: _leaf(case) is None and (has_error(case) or "leafId" not in case["expected"]),
            _costs_itself,
        ),
        Departure(
            "a missing parent is bridged, visibly",
            "the reference drops all history before the hole",
            lambda case: bool(_missing(case)),
            _bridged,
        ),
    ),
    always=_unchanged,
)

# --- entries and a leaf ---------------------------------------------------------------------------


def _of_entries(case: Case) -> str:
    header = {
        "type": "session",
        "version": 3,
        "id": "s1",
        "timestamp": "2026-01-05T08:00:00.000Z",
        "cwd": "/w",
    }
    return "".join(json.dumps(each) + "\n" for each in (header, *case["input"]["entries"]))


def _asked_leaf(case: Case) -> Any:
    leaf = case["params"].get("leafId")
    return True if isinstance(leaf, dict) else leaf


def _built(case: Case) -> None:
    want = case["expected"]
    with _file(_of_entries(case)) as path:
        loaded, leaf = load(path), _asked_leaf(case)
        if leaf is None:
            same(loaded.graph.view(None).path, (), "a path to nowhere")
            same(want["messages"], [], "messages of the reference")
            return
        opened = loaded.opened(None if leaf is True else leaf)
        same([item.message for item in opened.items], _messages(want), "messages")
        same(opened.settings.thinking, want["thinkingLevel"], "thinking level")
        model = want["model"] or {}
        same(_model(opened), (model.get("provider"), model.get("modelId")), "model")


def _unknown_leaf(case: Case) -> bool:
    leaf = _asked_leaf(case)
    return isinstance(leaf, str) and leaf not in {entry.get("id") for entry in case["input"]["entries"]}


def _no_other_leaf(case: Case) -> None:
    with _file(_of_entries(case)) as path:
        loaded = load(path)
        fails(lambda: loaded.graph.view(_asked_leaf(case)), "an unknown leaf")


# --- operations -----------------------------------------------------------------------------------


def _operations(case: Case) -> None:
    """The lines that ours writes for the same operations, read again: same leaf, same roles, same entries."""
    text, _ = replayed(case)
    want = case["expected"]
    _read_back(case, text)
    if want["file_after"] is not None:
        same(_written(text), _written(want["file_after"]), "entries")
        with _file(want["file_after"]) as path:
            theirs = open_session(path)
            same([ROLES[type(i.message)] for i in theirs.items], want["context_roles"], "roles of their file")


def _read_back(case: Case, text: str) -> None:
    ops = case["input"]["ops"]
    with _file(text) as path:
        if ops and ops[-1][0] in ("branch", "resetLeaf"):  # a move alone is in no file
            loaded = load(path)
            moved = None if ops[-1][0] == "resetLeaf" else case["expected"]["leafId"]
            holds(moved is None or moved in loaded.graph.by_id, "the leaf is an entry")
            return
        opened = open_session(path)
        same([ROLES[type(i.message)] for i in opened.items], case["expected"]["context_roles"], "roles")
        same(opened.leaf, case["expected"]["leafId"], "leaf")


def _torn(case: Case) -> bool:
    return bool(_text(case)) and not str(_text(case)).endswith("\n")


def _never_glued(case: Case) -> None:
    text, _ = replayed(case)
    _read_back(case, text)
    ids = {record.get("id") for record in _records(text)}
    said = {each for each in case["expected"]["returned"] if isinstance(each, str)}
    same(said - ids, set(), "entries that were lost")


_OWN = ("timestamp", "details", "fromHook", "perdure", "message", "display")


def _written(text: str) -> list[dict[str, Any]]:
    """Entries as far as both have them: details, usage and times are each one's own."""
    return [
        {k: v for k, v in e.items() if k not in _OWN} | {"said": _said(e.get("message"))}
        for e in _records(text)
    ]


def _said(message: Any) -> Message | None:
    found = decoded(message)
    return replace(found, usage=found.usage or Usage()) if isinstance(found, Assistant) else found


def _at_once(case: Case) -> None:
    """Each operation that says something has its line on disk when it returns."""
    _, counts = replayed(case)
    said = [1 if isinstance(each, str) else 0 for each in case["expected"]["returned"]]
    base = len([row for row in (_text(case) or "").split("\n") if row.strip()]) or 1
    same(counts, [base + sum(said[: n + 1]) for n in range(len(said))], "lines on disk after each operation")


def _buffered(case: Case) -> bool:
    """The reference keeps lines back until the first answer of the model."""
    return 0 in case["expected"]["lines_on_disk_after_each_op"]


def _at_once_and_the_same(case: Case) -> None:
    _at_once(case)
    _operations(case)


# --- mending --------------------------------------------------------------------------------------


def _mended(case: Case) -> None:
    want, text = case["expected"], _text(case)
    with _file(text) as path:
        if not want["repaired"] and want["reason"]:
            fails(lambda: mend(path, NOW), "a file without a session")
            return
        done = mend(path, NOW)
        same(bool(done.backup), want["has_backup"], "a backup")
        if done.backup:
            kept = Path(done.backup).read_bytes().decode("utf-8", "surrogatepass")
            same(kept, text, "the file as it was")
        after = text if want["file_after"] == "(unchanged)" else want["file_after"]
        mended = path.read_bytes().decode("utf-8", "surrogatepass")
        same(_records(mended), _records(after), "entries after")
        holds(mend(path, NOW + 1).backup == "", "what is mended needs no mending")


def _no_header(case: Case) -> bool:
    return bool(_records(_text(case))) and not _headed(_text(case))


def _header_made(case: Case) -> None:
    text = _text(case)
    with _file(text) as path:
        done = mend(path, NOW)
        holds(done.backup, "the file as it was is kept")
        mended = path.read_text(encoding="utf-8")
        holds(_headed(mended), "the first line is a header")
        same(_records(mended), _records(text), "entries after")


# --- a boundary that keeps nothing ----------------------------------------------------------------


def _hardened(case: Case) -> None:
    want = case["expected"]
    text = _text(case) if want["file_after"] == "(unchanged)" else want["file_after"]
    with _file(text) as path:
        opened = open_session(path)
        same(opened.leaf, want.get("leafId"), "leaf")
        same([_told(item) for item in opened.items], want["messages"], "messages")
    if want["applied"]:
        line = lines.compaction_line("c1", "b", NOW, "S", None, 9, Checkpoint(), b"{}")
        same(json.loads(line)["firstKeptEntryId"], "c1", "the anchor of a compaction that keeps nothing")


def _told(item: Item) -> str:
    message = item.message
    if isinstance(message, Summary):
        return f"CS:{message.summary}"
    return f"{ROLES[type(message)]}:{message.timestamp}:"


FUNCTIONS = {
    "SessionManager.open+buildSessionContext": OPEN,
    "buildSessionContext(entries,leafId)": Function(
        _built,
        (
            Departure(
                "an unknown leaf is an error, not another leaf",
                "the reference silently takes the last entry",
                _unknown_leaf,
                _no_other_leaf,
            ),
        ),
    ),
    "SessionManager.ops": Function(
        _operations,
        (
            Departure(
                "a line is never glued to a torn one",
                "the reference writes behind it, and loses the entry at the next load",
                _torn,
                _never_glued,
            ),
            Departure(
                "what is said is on disk at once",
                "the reference keeps it back until the model's first answer, and loses it if it never comes",
                _buffered,
                _at_once_and_the_same,
            ),
        ),
        always=_at_once,
    ),
    "repairSessionFileIfNeeded": Function(
        _mended,
        (
            Departure(
                "a missing header is made",
                "the reference gives up, and its next open overwrites the file",
                _no_header,
                _header_made,
            ),
        ),
    ),
    "hardenManualCompactionBoundary": Function(_hardened),
}
