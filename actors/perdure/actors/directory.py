"""Which sessions exist for this host, and which are awake: the grain directory, with its collector.

A sleeping session is a `Ref` whose handler wakes it: no task, no descriptor, under a kilobyte. When more
are awake than the host allows, those that rest longest are asked to sleep; one that works never is.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from perdure.actors.messages import Mail, Sleep
from perdure.actors.services import Services
from perdure.actors.session import Session
from perdure.kernel.mailbox import Handler, Ref


class Directory:
    """Refs by key. `most_awake` bounds the sessions in memory; those at work are not counted out."""

    def __init__(self, services: Services, most_awake: int) -> None:
        self._services, self._most_awake = services, most_awake
        self._refs: dict[str, Ref] = {}
        self.awake: dict[str, Session] = {}
        self._resting: OrderedDict[str, None] = OrderedDict()
        self.wakings = self.sleeps = 0

    def ref(self, key: str) -> Ref:
        """The session's address; it wakes with its first mail."""
        ref = self._refs.get(key)
        if ref is None:
            wake = partial(self._wake, key)
            ref = self._refs[key] = self._services.kernel.actor(
                key, wake, restart=partial(self._crashed, key)
            )
        return ref

    @property
    def known(self) -> int:
        """Sessions this host has heard of since it started."""
        return len(self._refs)

    def rested(self, key: str) -> None:
        """A session has come to rest: it is the last one to be put to sleep."""
        self._resting.pop(key, None)
        self._resting[key] = None
        while len(self.awake) > self._most_awake and self._resting:
            oldest, _ = self._resting.popitem(last=False)
            if oldest in self.awake:
                self._refs[oldest].post(Sleep())

    def _wake(self, key: str, mail: Mail) -> None:
        if isinstance(mail, Sleep):
            if mail.done is not None:
                mail.done.set(True)
            return
        ref = self._refs[key]
        session = Session(key, ref, self._services, self._released)
        self.awake[key] = session
        self.wakings += 1
        ref.handler = session.handle
        session.handle(mail)

    def _released(self, key: str) -> None:
        self.awake.pop(key, None)
        self._resting.pop(key, None)
        self.sleeps += 1
        self._refs[key].handler = partial(self._wake, key)

    def _crashed(self, key: str, error: BaseException) -> Handler | None:
        """A handler raised, which is a bug: the session begins anew from its file, its neighbours go on."""
        self._services.log("session.crashed", session=key, error=repr(error))
        session = self.awake.pop(key, None)
        if session is not None:
            session.abandon(error)
        self._resting.pop(key, None)
        return partial(self._wake, key)
