"""Entries written again behind another parent, under new ids: what follows on a branch that is begun anew.

Facts, labels, decisions and letters follow their entries; `perdure.of` names the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from perdure.context.changed import subject
from perdure.context.truncation.dag import Node
from perdure.edges.session import splice, tolerant
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.facts import VERSION, Checkpoint, Opened, Seen
from perdure.edges.session.kin import ALONE
from perdure.edges.session.load import Loaded
from perdure.records import Decision, Items

Change = Callable[[Node, bytes], bytes]


def copies(
    loaded: Loaded,
    later: Iterable[Node],
    parent: str,
    copied: dict[str, str],
    epoch: int,
    change: Change = lambda _node, raw: raw,
) -> list[bytes]:
    """The later entries behind their new parent, each as `change` makes it. A label of an earlier entry
    counts already.
    """
    rows = []
    for node in later:
        raw = loaded.past.read(node)
        target = decode_entry(raw).targetId if node.type == "label" else ""
        if node.id not in copied or (target and target not in copied):
            copied.pop(node.id, None)
            continue
        if target:
            raw = splice.put(raw, "targetId", copied[target])
        raw = splice.put(splice.put(raw, "id", copied[node.id]), "parentId", parent)
        raw = change(node, raw)
        rows.append(splice.put(raw, "perdure", copied_facts(raw, epoch, node.id)) + b"\n")
        parent = copied[node.id]
    return rows


def copied_facts(raw: bytes, epoch: int, of: str) -> dict[str, Any]:
    """Facts of a copy: letter and evidence stay its own; decisions stand in the checkpoint."""
    found = tolerant.loads(bytes(decode_entry(raw).perdure) or b"{}")
    kept = {name: found[name] for name in ("inbox", "evidence") if name in found} if found else {}
    return {"v": VERSION, "e": epoch, "of": of} | kept


def answered(opened: Opened, copied: Mapping[str, str]) -> tuple[Seen, ...]:
    return tuple(Seen(s.sender, s.mid, copied.get(s.entry, s.entry)) for s in opened.recent)


def renamed(decision: Decision, copied: Mapping[str, str]) -> Decision:
    about = subject(decision)
    new = copied.get(about)
    if new is None:
        return decision
    if decision.key == "limit":
        return replace(decision, value=new)
    kind, colon, _ = decision.key.partition(":")
    whole = not colon or decision.key == about
    key = new if whole else f"{kind}:{new}:{decision.key.rpartition(':')[2]}"
    return replace(decision, key=key)


def of_view(decisions: Mapping[str, Decision], items: Items) -> dict[str, Decision]:
    shown = {item.entry for item in items}
    return {key: decision for key, decision in decisions.items() if subject(decision) in shown}


def checkpoint_of(opened: Opened, epoch: int, decisions: Mapping[str, Decision]) -> Checkpoint:
    """What the tail of the file can't tell, for the view as it was opened."""
    ranges: list[tuple[int, int]] = []
    for entry in opened.entries:
        if ranges and ranges[-1][1] == entry.start:
            ranges[-1] = ranges[-1][0], entry.end + 1
        else:
            ranges.append((entry.start, entry.end + 1))
    return Checkpoint(
        session=opened.session_id,
        epoch=epoch,
        leaf=opened.leaf,
        settings=opened.settings,
        name=opened.name,
        pending=opened.pending,
        recent=opened.recent,
        decisions=tuple(decisions.values()),
        learned=opened.learned,
        compactions=opened.compactions,
        prev=opened.compaction,
        ranges=tuple(ranges[-32:]),
        gaps=opened.gaps,
        covered_bytes=opened.covered_bytes,
        pins=opened.pins,
        outgoing=opened.outgoing,
        owes=opened.owes,
        timers=opened.timers,
        delivered=opened.delivered,
        relatives=opened.relatives if opened.relatives != ALONE else None,
    )
