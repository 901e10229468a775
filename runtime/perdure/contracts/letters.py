"""Letters between sessions, who owns what, and the post that carries them. Assumes no single process."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from perdure.records import Block, Record

LetterKind: TypeAlias = Literal["external_user", "inter_session", "internal_system"]


class Letter(Record):
    """A message on its way to a session. `(sender, mid)` makes redelivery free.

    `evidence`: hashes of blobs that the message's entry keeps. `deliver`: whether the answer goes out by
    the session's channel; `None`: where nobody can wait for it, so not a user's own, whose sender can.
    """

    key: str
    sender: str
    mid: str
    content: tuple[Block, ...]
    arrived: int = 0
    kind: LetterKind = "external_user"
    evidence: tuple[str, ...] = ()
    deliver: bool | None = None


class Receipt(Record):
    """The letter is in its owner's session file; `entry` is where. `repeated`: it was there already."""

    key: str
    sender: str
    mid: str
    entry: str
    repeated: bool = False


class Grant(Protocol):
    """One ownership of one shard (a state folder)."""

    @property
    def shard(self) -> int: ...
    @property
    def token(self) -> int:
        """Rises with every ownership; the epoch of lines written under it."""
        ...

    @property
    def clean(self) -> bool:
        """Whether the previous owner released properly."""
        ...

    def valid(self) -> bool:
        """A clock read; never true again once false."""
        ...


class Placement(Protocol):
    """Who owns what."""

    def shard_of(self, key: str) -> int: ...
    def grant(self, shard: int) -> Grant | None: ...
    async def release(self, grant: Grant, *, clean: bool) -> None: ...


class Post(Protocol):
    """Every letter between sessions, tenants and hosts."""

    async def send(self, letter: Letter, deadline: float) -> Receipt: ...
