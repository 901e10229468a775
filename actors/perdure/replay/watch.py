"""What a player sees: counts by session from events, and from the model as it is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import sha256
from typing import Any

from perdure.contracts import Answer, ModelEvent, Request
from perdure.edges.models.scripted import ScriptedModel
from perdure.errors import ModelError
from perdure.events import Event, Notice, TurnFinished, TurnStarted
from perdure.records import Usage
from perdure.replay.cast import Stage


class Seen:
    """The counts of one session. They outlive the host, which may crash in between."""

    def __init__(self) -> None:
        self.turns = self.steps = self.requests = self.refused = self.overflows = self.errors = 0
        self.compactions = self.truncations = self.largest = 0
        self.usage = self.aside = Usage()  # of turns; of summaries and what plugins ask
        self.reply = self.stop = self.request = ""
        self.prompts = sha256()
        self.busy = False
        self.mids: list[str] = []  # acknowledged message ids

    def told(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case TurnStarted():
                self.busy = True
            case TurnFinished(_, reply):
                self.busy = False
                self.turns += 1
                self.steps += reply.steps
                self.usage = self.usage + reply.usage
                self.overflows += reply.stop == "overflow"
                self.errors += reply.stop == "error"
                self.reply, self.stop = reply.text, reply.stop
            case Notice(_, "compaction", text):
                self.compactions += text.startswith("Compacted")
            case Notice(_, "truncation", _):
                self.truncations += 1


class Watch:
    """All sessions of one replay."""

    def __init__(self) -> None:
        self.sessions: dict[str, Seen] = {}

    def of(self, session: str) -> Seen:
        """The session's counts."""
        return self.sessions.setdefault(session, Seen())

    def event(self, event: Any) -> None:
        """An event of the host's channel."""
        self.of(event.key).told(event)


class WatchedModel:
    """A scripted model whose requests are counted by session; summaries go into the digest only."""

    def __init__(self, model: ScriptedModel, watch: Watch, stage: Stage, keep_text: bool) -> None:
        self._model, self._watch, self._stage, self._keep_text = model, watch, stage, keep_text
        self.info = model.info

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        session, _, purpose = request.session.partition("#")
        seen = self._watch.of(session)
        await self._stage.hold(session)
        seen.prompts.update(request.body)
        if not purpose:
            seen.requests += 1
            if self._keep_text:
                seen.request = request.body.decode("utf-8", "replace")
        refused = self._model.refused
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    used = event.message.usage if isinstance(event, Answer) else None
                    if used is not None and purpose:
                        seen.aside = seen.aside + used
                    elif used is not None:
                        seen.largest = max(seen.largest, used.prompt)
                    yield event
        except ModelError:
            seen.refused += self._model.refused - refused
            raise
