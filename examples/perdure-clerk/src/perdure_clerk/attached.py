"""The clerk as a context engine: what is new is said in its words, everything else is left to perdure."""

from __future__ import annotations

from typing import Any

from perdure.contracts import Assembled, EngineInfo, PluginRuntime
from perdure.plugins.actor import ActorEngine, Assemble
from perdure.plugins.process import ProcessEngine
from perdure.plugins.registry import Api
from perdure_clerk.clerk import Clerk

INFO = EngineInfo("clerk", "The clerk", passive=True)
APART = EngineInfo("clerk-apart", "The clerk, in a process of its own", passive=True)


def desk(clerk: Clerk, log: Any) -> Any:
    """What the engine tells, in the clerk's words."""

    async def receive(message: Any) -> Any:
        if not isinstance(message, Assemble):
            return None
        calls = [block for item in message.messages for block in getattr(item.message, "content", ())]
        await clerk.receive(("note", message.context.session_id))
        log("noted", blocks=len(calls))
        return Assembled(message.messages, addition=f"The clerk has {len(calls)} papers on the desk.")

    return receive


def engine(lent: PluginRuntime) -> ActorEngine:
    """In this process."""
    return ActorEngine(INFO, desk(Clerk(), lent.log))


def apart() -> ProcessEngine:
    """In a process of its own, which runs this module."""
    return ProcessEngine(APART, "perdure_clerk.attached")


def register(api: Api) -> None:
    api.register_context_engine("clerk", engine)


def register_apart(api: Api) -> None:
    api.register_context_engine("clerk-apart", apart)


if __name__ == "__main__":
    from perdure.plugins.remote import serve

    serve(engine)
