"""What changes a session: commands, branches, names, forks."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from perdure.actors import changed
from perdure.actors.changed import Change
from perdure.edges.session import branching
from perdure.edges.session.files import Held
from perdure.edges.session.fork import fork as make_fork
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.errors import UsageError
from perdure.events import Notice
from perdure.server.bodies import (
    Deleted,
    Done,
    Focus,
    Fork,
    Forked,
    Halted,
    Halting,
    Labelled,
    Line,
    ModelRef,
    Named,
    Nothing,
    Stopped,
    ToEntry,
    Told,
    Truncation,
    Verdict,
    Waiting,
)
from perdure.server.calls import Call
from perdure.server.problems import Refused, json


async def compact(call: Call) -> Response:
    """Summarise the older part now."""
    key, asked = await call.known(), await call.body(Focus)
    _must_take_work(call)
    before = await _compaction(call, key)
    text = await call.host.command(key, f"/compact {asked.focus}".strip())
    after = await _compaction(call, key)
    return json(Done(key, after != before, "" if after != before else text, text))


async def _compaction(call: Call, key: str) -> str | None:
    path = call.host.files.path(key)
    return await call.host.io.run(lambda: open_session(path).compaction)


async def undo_compaction(call: Call) -> Response:
    """Take the latest compaction back."""
    key = await call.known()
    await call.body(Nothing)
    await call.host.command(key, "/status")  # awake: its model and window decide whether it fits

    session = call.host.directory.awake.get(key)
    if session is None or session.state in ("opening", "closed"):
        raise Refused(429, "busy", f"{key}: it has just gone to sleep: ask again", 1.0)
    env = session.environment

    return await _changed(call, key, lambda held, now: changed.undo(held, now, env))


async def truncate(call: Call) -> Response:
    """Move what compactions cover into a segment beside the file, or discard such segments."""
    key, asked = await call.known(), await call.body(Truncation)
    sync = call.host.io.sync

    def make(held: Held, now: int) -> Change:
        return changed.discard(held, now) if asked.discard else changed.truncate(held, now, sync=sync)

    return json(_done(key, await call.host.change(key, make)))


async def switch(call: Call) -> Response:
    """Go on behind another entry."""
    key, asked = await call.known(), await call.body(ToEntry)
    return await _changed(call, key, lambda held, now: changed.switch(held, asked.entry, now))


async def label(call: Call) -> Response:
    """Name an entry."""
    key, asked = await call.known(), await call.body(Labelled)
    text = " ".join(asked.text.split())
    done = await call.host.change(key, lambda held, now: changed.label(held, asked.entry, text, now))
    return json(_done(key, done))


async def rename(call: Call) -> Response:
    """Name the session."""
    key, asked = await call.known(), await call.body(Named)
    name = " ".join(asked.name.split())
    if not name:
        raise Refused(422, "invalid", "the name is empty: give it some text")
    return json(_done(key, await call.host.change(key, lambda held, now: changed.rename(held, name, now))))


async def fork(call: Call) -> Response:
    """Make a session of the path to an entry. The old one goes on as it is."""
    key, asked = await call.known(), await call.body(Fork)
    made = call.checked(asked.key)
    host = call.host
    now, grant = host.clock.wall_ms(), host.placement.grant(0)
    epoch = grant.token if grant is not None else 0

    def make() -> Forked:
        source = load(host.files.path(key))
        leaf = branching.find(source, asked.entry) if asked.entry else open_session(source.path).leaf
        if leaf is None:
            raise UsageError(f"{key}: nothing was said yet: there is nothing to fork")
        path = make_fork(host.files, source, leaf, made, epoch, now, sync=host.io.sync)
        return Forked(key, made, leaf, load(path).count)

    return json(await host.io.run(make), 201)


async def abort(call: Call) -> Response:
    """Stop the running turn, or a compaction."""
    key = await call.known()
    await call.body(Nothing)
    return json(Stopped(key, await call.host.abort(key)))


async def stop(call: Call) -> Response:
    """Stop the session's turn; with `tree` every subagent below it has ended when this answers."""
    key, asked = await call.known(), await call.body(Halting)
    stopped, below = await call.host.stop(key, tree=asked.tree)
    return json(Halted(key, stopped, below))


async def begin_anew(call: Call) -> Response:
    """Put the file aside and begin another, as `/new` does."""
    key = await call.known()
    await call.body(Nothing)
    return json(Told(key, await call.host.command(key, "/new")))


async def model(call: Call) -> Response:
    """Choose the session's model."""
    key, asked = await call.known(), await call.body(ModelRef)
    return json(Told(key, await call.host.command(key, f"/model {asked.model}")))


async def command(call: Call) -> Response:
    """Run a slash command."""
    key, asked = call.key(), await call.body(Line)
    _must_take_work(call)
    return json(Told(key, await call.host.command(key, asked.line)))


async def delete(call: Call) -> Response:
    """Delete the session for good, its subagents first."""
    key = await call.known()
    return json(Deleted(key, tuple(erased.key for erased in await call.host.delete(key))))


async def waiting(call: Call) -> Response:
    """Tool calls that wait for a person."""
    key = await call.known()
    return json(Waiting(key, call.host.approvals(key)))


async def approve(call: Call) -> Response:
    """Answer one of them; what still waits then."""
    key, asked = await call.known(), await call.body(Verdict)
    if asked.id not in {waiting.id for waiting in call.host.approvals(key)}:
        raise Refused(404, "not_found", f"approval {asked.id[:40]!r}: nothing waits under that id (any more)")
    call.host.answer(asked.id, asked.allow, remember=asked.remember, note=asked.note, key=key)
    return json(Waiting(key, call.host.approvals(key)))


def _must_take_work(call: Call) -> None:
    if call.serving.draining:
        raise Refused(503, "closed", "the host is stopping: ask the one that follows", 5.0)


async def _changed(call: Call, key: str, make: Callable[[Held, int], Change]) -> Response:
    """A change of the branch: who follows the session is told that it stands elsewhere now."""
    done: Change = await call.host.change(key, make)
    if done.done:
        call.host.services.events.publish(Notice(key, "branch", done.text))
    return json(_done(key, done))


def _done(key: str, change: Change) -> Done:
    return Done(key, **{name: getattr(change, name) for name in change.__struct_fields__})
