"""Every error of perdure, split by who must act. Each docstring says what the reader does now."""

from __future__ import annotations

from typing import Literal, TypeAlias


class PerdureError(Exception):
    """Base of all. Its text is one line for a person: what, where, what to do."""


# --- the user must act ----------------------------------------------------------------------------


class UsageError(PerdureError):
    """A command or call was given something it can't take: correct it and call again."""


class WaitCycle(UsageError):
    """A tool awaits a reply that its own turn holds up: send without awaiting, the text names the chain."""


class ConfigError(UsageError):
    """A setting is unknown or out of range: the text names file, key and the accepted values."""


class ModelUnusable(ConfigError):
    """No call of the session's model can work (no key, no package): nothing was accepted; do what it says."""


class SessionNotFound(UsageError):
    """No session of that key, or no file of that name: check the spelling (`perdure sessions list`)."""


class MessageTooLarge(UsageError):
    """This message alone can't fit the window: shorten it, attach a file, or use a larger model."""

    def __init__(self, tokens: int, room: int) -> None:
        super().__init__(
            f"the message is about {tokens:,} tokens, the window leaves room for {room:,}: "
            "shorten it, put the text in a file, or choose a model with a larger window"
        )
        self.tokens, self.room = tokens, room


class IdReused(UsageError):
    """A message id was taken by another text before: nothing was accepted; give each message its own id."""


# --- the operator must act ------------------------------------------------------------------------


class UnreadableFile(PerdureError):
    """A file isn't a session we can make sense of: it was left as it is; `perdure doctor` says more."""


class NewerState(UnreadableFile):
    """A newer perdure wrote the state folder: go on with that version, or restore a backup made before."""

    def __init__(self, path: str, what: str, known: int) -> None:
        super().__init__(
            f"{path}: {what}, this perdure knows up to {known}: update perdure, or restore a backup of the "
            "state folder made before the newer version ran; nothing was changed"
        )


class DamagedStore(PerdureError):
    """A plugin's database is damaged, or none at all: it was left as it is; move it aside to rebuild it."""


class SegmentGone(PerdureError):
    """What is asked for was moved into a segment that was discarded or lost: choose a later entry."""


class Locked(PerdureError):
    """Another process holds the file or state folder: stop it first."""


class StorageFailed(PerdureError):
    """A write failed (full disk, I/O error) and was cut back; nothing was acknowledged. Retryable."""


class EngineUnavailable(PerdureError):
    """The chosen context engine failed, and the policy is strict: nothing was sent to the model."""


class Fenced(PerdureError):
    """Another owner took the file over: nothing was acknowledged; send again, the new owner answers."""


class UnknownEngine(ConfigError):
    """No engine, or other plugin, of that id is registered: the text lists those that are."""


# --- the caller should retry later ----------------------------------------------------------------


class Busy(PerdureError):
    """The session's mailbox or the host's budget is full: nothing was accepted; send again later.

    `retry_after`: seconds, where somebody knows when there will be room.
    """

    def __init__(self, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Closed(PerdureError):
    """The host is stopping: nothing was accepted."""


class Parked(PerdureError):
    """The session crashed too often and is parked: an operator retries or drops it."""


class Quarantined(PerdureError):
    """The session's file could not be opened: it is tried again by itself, or when an operator says so."""


# --- the way out ----------------------------------------------------------------------------------


class DeliveryFailed(PerdureError):
    """A channel did not take an answer. `kind` says what is known.

    `retryable`: it surely has nothing, and may take it later (after `retry_after` seconds, where told);
    `permanent`: it refuses this one; `gone`: it refuses all, until the configuration changes;
    `ambiguous`: it may have it.
    """

    def __init__(
        self,
        kind: Literal["retryable", "permanent", "gone", "ambiguous"],
        text: str,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text)
        self.kind, self.retry_after = kind, retry_after


# --- the model or the context ---------------------------------------------------------------------

ModelErrorKind: TypeAlias = Literal[
    "overflow", "rate_limit", "overloaded", "server", "auth", "billing", "invalid", "not_found",
    "transport", "timeout", "cut", "empty", "aborted", "unknown", "spend_cap",
]  # fmt: skip


class ModelError(PerdureError):
    """A model call failed. `kind` is the one classification every part of perdure acts on."""

    RETRYABLE = frozenset({"rate_limit", "overloaded", "server", "transport", "timeout", "cut", "empty"})

    def __init__(
        self, kind: ModelErrorKind, text: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.kind, self.status, self.retry_after = kind, status, retry_after

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in self.RETRYABLE


class SpendCap(ModelError):
    """A day's budget is used up, so the call was not made: wait for the next day, or raise the cap."""

    def __init__(self, text: str) -> None:
        super().__init__("spend_cap", text)


class ContextOverflow(PerdureError):
    """The request can't be brought under the window by the guard alone: compaction must act.

    `owners` say who takes how many of the tokens (system, tools, pinned, history, newest turn); they sum
    to `tokens`. `floor` is those of them that can't be given up, when they alone are too large.
    """

    def __init__(
        self,
        tokens: int,
        limit: int,
        floor: dict[str, int] | None = None,
        owners: dict[str, int] | None = None,
    ) -> None:
        named = ", ".join(f"{k} {v:,}" for k, v in (floor or {}).items())
        super().__init__(
            f"the request is about {tokens:,} tokens and the line is {limit:,}"
            + (f"; what can't be given up: {named}" if named else "")
        )
        self.tokens, self.limit, self.floor = tokens, limit, floor or {}
        self.owners = owners or {}
