"""Slash commands of a session: what a user may say to the runtime instead of to the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors import pinning
from perdure.actors.approvals import verdict
from perdure.actors.messages import Command
from perdure.actors.undoing import undone
from perdure.context.text.plural import counted
from perdure.errors import PerdureError, UsageError

if TYPE_CHECKING:
    from perdure.actors.session import Session

HELP = (
    "commands: /help, /compact [focus], /undo, /pin [TEXT], /pins, /unpin N|all, /status, /model [ref], "
    "/think [level], /engine [NAME|default], /name TEXT, /outbox [retry|drop ENTRY|all], "
    "/approvals, /approve [ID] [session], /deny [ID] [why], /abort, /stop all, /new"
)
LEVELS = ("off", "minimal", "low", "medium", "high")


def run(session: Session, mail: Command) -> None:
    """Answer `mail.done` with one text for a person; a wrong command says what is right."""
    try:
        match mail.name:
            case "compact":
                session.compacting.commanded(mail.argument, mail.done)
                return
            case "new":
                session.opening.renew(mail.done)
                return
            case "undo":
                env, estimator = session.environment, session.scales.estimator
                session.opening.change(lambda held, now: undone(held, now, env, estimator), mail.done)
                return
            case "status":
                answer = status(session)
            case "model":
                answer = _model(session, mail.argument)
            case "engine":
                answer = _engine(session, mail.argument)
            case "think":
                answer = _think(session, mail.argument)
            case "name":
                answer = _name(session, mail.argument)
            case "pin":
                answer = pinning.pin(session, mail.argument)
            case "outbox":
                answer = session.sending.commanded(mail.argument)
            case "pins":
                answer = pinning.listed(session)
            case "unpin":
                answer = pinning.unpin(session, mail.argument)
            case "approve" | "deny" | "approvals":
                answer = _approval(session, mail.name, mail.argument)
            case "help":
                answer = HELP
            case "abort" | "stop" if mail.argument.strip() == "all":
                answer = session.subagents.stop_all()
            case "abort" | "stop":
                answer = "Stopping." if session.abort() else "Nothing is running."
            case _:
                raise UsageError(f"unknown command /{mail.name}; {HELP}")
        session.services.durable.settle(mail.done, answer)
    except PerdureError as error:
        session.not_written(error)
        mail.done.fail(error)


def status(session: Session) -> str:
    """A few lines: model, context, compactions, state."""
    t, env = session.transcript, session.environment
    used = session.scales.tokens
    share = 100 * used / env.limits.window
    lines = [
        f"session {session.key}" + (f" ({t.name})" if t.name else ""),
        f"model {env.model.ref}, thinking {env.thinking}, engine {env.engine}",
        f"context {used:,} of {env.limits.window:,} tokens ({share:.0f} %), "
        f"{counted(len(t.items), 'message')}",
        f"compactions {t.compactions}, waiting messages {len(t.pending)}, state {session.state}",
    ]
    return "\n".join(lines)


def _approval(session: Session, name: str, argument: str) -> str:
    """`/approve [ID] [session]`, `/deny [ID] [why]`, `/approvals`; without an id the session's oldest."""
    approvals = session.services.approvals
    waiting = approvals.waiting(session.key)
    if name == "approvals":
        listed = [f"{w.id}: {w.subject} {w.arguments}" for w in waiting]
        return "\n".join(listed) or "Nothing waits for approval."
    first, _, rest = argument.partition(" ")
    if first not in {w.id for w in waiting}:
        if not waiting:
            raise UsageError("nothing waits for approval here")
        first, rest = waiting[0].id, argument
    if name == "approve" and rest.strip() not in ("", "session"):
        raise UsageError("/approve takes an id and the word session: /approvals lists what waits")
    told = verdict(name == "approve", "session" if name == "approve" and rest else "once", rest.strip())
    asked = approvals.answer(first, told, session.key)
    return f"{'Allowed' if told.allow else 'Denied'}: {asked.subject}"


def _model(session: Session, ref: str) -> str:
    if not ref:
        return f"The model is {session.environment.model.ref}."
    info = session.services.resolver.model_info(ref)
    before = session.environment
    if info.ref == before.model.ref:
        return f"The model is {info.ref}."
    session.transcript.choose_model(info.provider, info.id)
    session.surroundings.adopt(session.transcript.settings, "model")
    limits, used = session.environment.limits, session.scales.tokens
    told = f"The model is now {info.ref} with a window of {limits.window:,} tokens."
    if limits.window >= before.limits.window or used <= limits.threshold:
        return told
    if session.compacting.consider("model_switch"):
        return f"{told} The context of {used:,} tokens is compacted for it before the next answer."
    return f"{told} The context of {used:,} tokens is over its line of {limits.threshold:,}: send /compact."


def _engine(session: Session, name: str) -> str:
    """The session's own engine from the next turn on; `default` is the slot's again."""
    engines, now = session.services.engines, session.environment.engine
    if not name:
        return f"The context engine is {now}."
    if session.state != "idle":
        raise UsageError("a turn runs: choose an engine when it is over")
    chosen = "" if name == "default" else engines.of(name).id
    session.transcript.choose_engine(chosen)
    session.surroundings.adopt(session.transcript.settings, "engine")
    return f"The context engine is now {session.environment.engine}."


def _think(session: Session, level: str) -> str:
    if not level:
        return f"Thinking is {session.environment.thinking}; the levels are {', '.join(LEVELS)}."
    if level not in LEVELS:
        raise UsageError(f"thinking level {level!r} is not known: one of {', '.join(LEVELS)}")
    session.transcript.choose_thinking(level)
    session.surroundings.adopt(session.transcript.settings, "thinking")
    return f"Thinking is now {level}."


def _name(session: Session, name: str) -> str:
    if not name.strip():
        raise UsageError("/name needs a name")
    session.transcript.rename(name.strip())
    return f"This session is now called {name.strip()!r}."
