"""What changes a session: commands, branches, names, forks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from perdure.actors.undoing import told, undo
from perdure.context.tokens.estimator import estimator_of
from perdure.edges.session import branching, rewrite
from perdure.edges.session.branching import Branched
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
    Labelled,
    Line,
    ModelRef,
    Named,
    Nothing,
    Stopped,
    ToEntry,
    Told,
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

    def make(held: Held, now: int) -> Done:
        done, measured = undo(held, now, env, estimator_of(held.opened.learned, env.model.ref))
        return Done(key, done.done, done.reason, told(done, measured, env), done.leaf)

    return await _changed(call, key, make)


async def truncate(call: Call) -> Response:
    """Move what compactions cover into a segment beside the file."""
    key = await call.known()
    await call.body(Nothing)

    def make(held: Held, now: int) -> Done:
        done = rewrite.truncate(held.file, lambda: held.ids.entry(now), now, sync=call.host.io.sync)
        held.opened = open_session(held.file.path)
        if done.done:
            branching.checkpoint(held, now)
        return Done(key, done.done, done.reason, done.line(), held.opened.leaf)

    return json(await call.host.change(key, make))


async def switch(call: Call) -> Response:
    """Go on behind another entry."""
    key, asked = await call.known(), await call.body(ToEntry)
    return await _changed(call, key, lambda held, now: _done(key, branching.switch(held, asked.entry, now)))


async def label(call: Call) -> Response:
    """Name an entry."""
    key, asked = await call.known(), await call.body(Labelled)
    text = " ".join(asked.text.split())

    def make(held: Held, now: int) -> Done:
        target = branching.find(load(held.file.path), asked.entry)
        return _done(key, branching.label(held, target, text, now))

    return json(await call.host.change(key, make))


async def rename(call: Call) -> Response:
    """Name the session."""
    key, asked = await call.known(), await call.body(Named)
    name = " ".join(asked.name.split())
    if not name:
        raise Refused(422, "invalid", "the name is empty: give it some text")
    return json(await call.host.change(key, lambda held, now: _done(key, branching.rename(held, name, now))))


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
    call.host.answer(asked.id, asked.allow, remember=asked.remember, note=asked.note, key=key)
    return json(Waiting(key, call.host.approvals(key)))


def _must_take_work(call: Call) -> None:
    if call.serving.draining:
        raise Refused(503, "closed", "the host is stopping: ask the one that follows", 5.0)


async def _changed(call: Call, key: str, make: Callable[[Held, int], Any]) -> Response:
    """A change of the branch: who follows the session is told that it stands elsewhere now."""
    done: Done = await call.host.change(key, make)
    if done.done:
        call.host.services.events.publish(Notice(key, "branch", done.text or f"now at {done.leaf}"))
    return json(done)


def _done(key: str, done: Branched) -> Done:
    return Done(key, done.done, done.reason, "", done.leaf)
