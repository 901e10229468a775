"""What must hold all the time, and how it is looked at: design §12, on samples while the week passes, on
every file when it is over."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.actors.assembling import assemble
from perdure.actors.messages import Sleep, Snapshot
from perdure.actors.services import Services
from perdure.context import pipeline
from perdure.context.ledger import ledger
from perdure.context.pipeline import Prepared, Scratch
from perdure.edges.session.doctor import examine
from perdure.edges.session.history import History
from perdure.kernel.waiter import Waiter

if TYPE_CHECKING:
    from perdure.host import Host

MID = re.compile(rb'"mid":"([^"]*)"')


async def request_of(services: Services, view: Snapshot) -> Prepared:
    """The request that the session would make now, from nothing but its view."""
    scratch = Scratch()
    stage = pipeline.history(
        view.items, view.environment, view.decisions, unseen=view.unseen, scratch=scratch
    )
    return pipeline.request(
        stage,
        await assemble(services, view, stage.items),
        view.environment,
        decided=view.decisions,
        unseen=view.unseen,
        hooks=(*services.hooks, *pipeline.HOOKS),
        estimator=view.estimator,
        cache_age=view.cache_age,
        scratch=scratch,
    )


async def slept_and_woke(host: Host, key: str, problem: Callable[[str], None]) -> bool:
    """Put a resting session to sleep, wake it, and compare the request it would make. False: it works."""
    session = host.directory.awake.get(key)
    if session is None or not session.at_ease:
        return False
    before = await request_of(host.services, session.snapshot())
    accounted(session.snapshot(), before, key, problem)
    if session.scales.budget.total != session.scales.tokens:
        problem(f"{key}: the sources of its budget don't add up")
    slept: Waiter[bool] = host.clock.waiter("sleep")
    session.ref.post(Sleep(slept))
    if not await host.clock.wait(slept, 60.0):
        return False
    await host.command(key, "/help")
    woken = host.directory.awake.get(key)
    if woken is None:
        problem(f"{key}: did not wake")
        return True
    after = await request_of(host.services, woken.snapshot())
    if digest(before.body) != digest(after.body):
        problem(f"{key}: another prompt after sleep")
    return True


def accounted(view: Snapshot, made: Prepared, key: str, problem: Callable[[str], None]) -> None:
    """Every entry of the view is in the request or in its ledger, by a named rule."""
    told = {line.entry for line in ledger(made.items, made.lines, view.estimator, view.unseen)}
    if missing := {item.entry for item in view.items if item.entry} - told:
        problem(f"{key}: the ledger doesn't know {sorted(missing)[:3]}")


def digest(body: bytes) -> bytes:
    """Of a request body."""
    return blake2b(body, digest_size=16).digest()


def on_disk(path: Path, mids: list[str], problem: Callable[[str], None]) -> int:
    """Every acknowledged message once and in order, covered or not, in a healthy file; entries seen.

    In the order of ids, which is that of writing: truncation may leave one behind that it moves others past.
    """
    seen, entries = [], 0
    for _, raw in sorted(History(path).records()):
        entries += 1
        if b'"type":"message"' in raw[:200] and (found := MID.search(raw)):
            seen.append(found[1].decode())
    if seen != mids:
        odd = next((n for n, pair in enumerate(zip(seen, mids, strict=False)) if pair[0] != pair[1]), -1)
        problem(f"{path.name}: {len(mids)} acknowledged, {len(seen)} in the file, first difference at {odd}")
    report = examine(path)
    if not report.healthy:
        problem(f"{path.name}: {report.problems[0].kind}")
    return entries


def descriptors() -> int:
    """Open ones of this process."""
    return len(os.listdir("/proc/self/fd"))
