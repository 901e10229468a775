"""`perdure cleanup`: the plan of `[retention]`, shown or carried out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.cli.output import emit, say, size, warn
from perdure.cli.owning import Shop, now_ms, owning
from perdure.context.text.plural import counted
from perdure.edges import retention
from perdure.edges.blobs import LocalBlobs
from perdure.edges.config import load
from perdure.edges.erasing import Eraser
from perdure.edges.retention import Doomed, Plan, Removed
from perdure.edges.session.discarding import discarder
from perdure.edges.session.links import keyed
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.errors import PerdureError
from perdure.kernel.io import IoPolicy
from perdure.looking.target import existing

SHOWN = 100  # lines for a person


def run(*, dry_run: bool, state: Path | None, as_json: bool) -> int:
    """Exit 0, or 1 where the limits don't hold afterwards (a dry run: would not)."""
    folder = existing(state)
    settings = load(state=folder.root)
    if dry_run:
        eraser = Eraser(folder.path, LocalBlobs(folder.evidence, IoPolicy(False)), None)
        plan, done = planned(folder, settings, eraser), Removed()
    else:
        with owning(state) as shop:
            plan, done = _clean(shop)
    met = not plan.unmet and not done.failed
    if as_json:
        emit(_dict(plan, done, dry_run=dry_run, met=met))
    else:
        _print(folder, settings, plan, done, dry_run=dry_run)
    return 0 if met else 1


def planned(folder: StateFolder, settings: Settings, eraser: Eraser) -> Plan:
    """The one plan. Nothing is looked at where nothing is configured."""
    wanted = settings.retention
    if not wanted.anything:
        return Plan()
    now = now_ms()
    referred = eraser.referred if wanted.evidence_mb else frozenset
    found = retention.survey(folder, now, dict(_waiting(folder)), referred)
    return retention.plan(found, wanted, now)


def _waiting(folder: StateFolder) -> dict[str, str]:
    """Sessions in which messages wait for an answer. Reads tails, for there may be no index."""
    found = {}
    for key, path in keyed(folder.sessions):
        try:
            if open_session(path).pending:
                found[key] = "messages wait in it"
        except (PerdureError, OSError):
            continue
    return found


def _clean(shop: Shop) -> tuple[Plan, Removed]:
    eraser = shop.eraser()
    plan, now = planned(shop.folder, shop.settings, eraser), now_ms()
    discard = discarder(shop.files, now)
    done = retention.carry_out(shop.folder, plan.doomed, eraser, shop.blobs, now, discard)
    for each in done.done:
        shop.log("retention.removed", kind=each.kind, name=each.name, bytes=each.bytes, why=each.why)
    return plan, done


# --- told -----------------------------------------------------------------------------------------


def _print(folder: StateFolder, settings: Settings, plan: Plan, done: Removed, *, dry_run: bool) -> None:
    if not settings.retention.anything:
        say(f"{folder.root}: nothing to do: [retention] in {folder.config} sets no limit")
        return
    rows = plan.doomed if dry_run else done.done
    would = "would remove" if dry_run else "removed"
    say(f"{folder.root}: {would} {counted(len(rows), 'thing')}, {size(sum(each.bytes for each in rows))}")
    if done.archive:
        say(f"archived and verified: {folder.path / done.archive}")
    for each in rows[:SHOWN]:
        say(f"  {each.kind} {each.name}  {size(each.bytes)}  ({each.why})")
    if len(rows) > SHOWN:
        say(f"  … {counted(len(rows) - SHOWN, 'more thing')} (--json lists all)")
    for text in plan.unmet:
        warn(f"perdure: not met: {text}")
    for each, why in done.failed:
        warn(f"perdure: not removed: {each.name}: {why}")


def _dict(plan: Plan, done: Removed, *, dry_run: bool, met: bool) -> dict[str, Any]:
    failed = [_row(each) | {"error": why} for each, why in done.failed]
    return {
        "dry_run": dry_run,
        "met": met,
        "plan": [_row(each) for each in plan.doomed],
        "bytes": plan.bytes,
        "refused": [_row(each) for each in plan.refused],
        "unmet": list(plan.unmet),
        "removed": [_row(each) for each in done.done],
        "failed": failed,
        "archive": done.archive or None,
    }


def _row(each: Doomed) -> dict[str, Any]:
    return {"kind": each.kind, "name": each.name, "bytes": each.bytes, "why": each.why}
