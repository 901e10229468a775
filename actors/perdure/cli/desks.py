"""Who changes a session: this command, where it can have the state folder, else the host that has it.

One interface, two forms; what they answer is the same, so the commands say the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from perdure.actors import changed
from perdure.actors.changed import Change
from perdure.cli.changing import Desk, figures, owned, session
from perdure.cli.output import warn
from perdure.cli.owning import now_ms
from perdure.cli.remote import address
from perdure.cli.remote import client as calls
from perdure.cli.remote.address import Address
from perdure.edges.config import load
from perdure.edges.session import branching
from perdure.edges.session.facts import Opened
from perdure.edges.session.fork import fork
from perdure.edges.session.load import load as load_file
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.errors import ConfigError, UsageError
from perdure.looking.resolving import resolve
from perdure.looking.target import existing
from perdure.records import Record


class Sized(Record):
    """A change, and the session's figures before and after it."""

    change: Change
    before: dict[str, int]
    after: dict[str, int]


class Changes(Protocol):
    """Changes of one session."""

    def undo(self, model: str | None, window: int | None) -> Sized: ...
    def truncate(self, *, discard: bool) -> Sized: ...
    def switch(self, entry: str) -> Change: ...
    def label(self, entry: str, text: str) -> Change: ...
    def rename(self, name: str) -> Change: ...
    def fork(self, entry: str | None, new_key: str) -> Change: ...


def changes(key: str, state: Path | None) -> Changes:
    """By the host of that state folder where one serves it, else by this command."""
    session(key, state)
    at = address.running(state)
    return Owner(key, state) if at is None else Caller(key, state, at)


class Owner:
    """Takes the state folder for each change. Raises `Locked` with who has it."""

    def __init__(self, key: str, state: Path | None) -> None:
        self._key, self._state = key, state

    def undo(self, model: str | None, window: int | None) -> Sized:
        with owned(self._key, self._state) as desk:
            env = desk.environment(model, window)
            before = desk.figures(env)
            done = changed.undo(desk.held, now_ms(), env)
            desk.log("session.undo", session=self._key, done=done.done, text=done.text)
            return Sized(done, before, desk.figures(env))

    def truncate(self, *, discard: bool) -> Sized:
        with owned(self._key, self._state) as desk:
            env = desk.environment()
            before = desk.figures(env)
            if discard:
                done = changed.discard(desk.held, now_ms())
                if done.done:
                    freed = done.proof["freed"]
                    desk.log.warning("session.discarded", session=self._key, text=done.text, bytes=freed)
            else:
                done = changed.truncate(desk.held, now_ms(), sync=True)
                desk.log("session.truncation", session=self._key, text=done.text)
            return Sized(done, before, desk.figures(env))

    def switch(self, entry: str) -> Change:
        return self._do("switch", lambda desk: changed.switch(desk.held, entry, now_ms()))

    def label(self, entry: str, text: str) -> Change:
        return self._do("label", lambda desk: changed.label(desk.held, entry, text, now_ms()))

    def rename(self, name: str) -> Change:
        return self._do("rename", lambda desk: changed.rename(desk.held, name, now_ms()))

    def fork(self, entry: str | None, new_key: str) -> Change:
        return self._do("fork", lambda desk: _forked(desk, entry, new_key))

    def _do(self, name: str, make: Callable[[Desk], Change]) -> Change:
        with owned(self._key, self._state) as desk:
            done = make(desk)
            desk.log.graded(f"session.{name}", session=self._key, leaf=done.leaf)
            return done


def _forked(desk: Desk, entry: str | None, new_key: str) -> Change:
    source = load_file(desk.held.file.path)
    leaf = branching.find(source, entry) if entry is not None else desk.held.opened.leaf
    if leaf is None:
        raise UsageError(f"{desk.key}: nothing was said yet: there is nothing to fork")
    made = fork(desk.files, source, leaf, new_key, desk.held.file.epoch, now_ms(), sync=True)
    desk.shop.changed.add(new_key)
    return _fork(new_key, made, leaf, load_file(made).count)


def _fork(key: str, made: Path, leaf: str, entries: int) -> Change:
    return Change(True, leaf=leaf, proof={"key": key, "file": os.fspath(made), "entries": entries})


class Caller:
    """Asks a running host, which has the folder; figures are read from the session's file beside it."""

    def __init__(self, key: str, state: Path | None, at: Address) -> None:
        self._key, self._state, self._at = key, state, at

    def undo(self, model: str | None, window: int | None) -> Sized:
        decided(self._at, model, window)
        return self._sized("undo", {})

    def truncate(self, *, discard: bool) -> Sized:
        return self._sized("truncate", {"discard": discard})

    def switch(self, entry: str) -> Change:
        return self._ask("switch", {"entry": entry})

    def label(self, entry: str, text: str) -> Change:
        return self._ask("label", {"entry": entry, "text": text})

    def rename(self, name: str) -> Change:
        return self._ask("rename", {"name": name})

    def fork(self, entry: str | None, new_key: str) -> Change:
        found = self._post("fork", {"key": new_key, "entry": entry})
        made = session(new_key, self._state).path
        return _fork(new_key, made, str(found["leaf"]), int(found["entries"]))

    def _sized(self, name: str, body: dict[str, Any]) -> Sized:
        before = seen(self._key, self._state)
        done = self._ask(name, body)
        return Sized(done, before, seen(self._key, self._state))

    def _ask(self, name: str, body: dict[str, Any]) -> Change:
        return msgspec.convert(self._post(name, body), Change)

    def _post(self, name: str, body: dict[str, Any]) -> Any:
        path = f"{calls.session(self._key)}/{name}"
        return calls.asked(self._at, lambda remote: remote.post(path, body, seconds=calls.LONG))


def decided(at: Address, model: str | None, window: int | None) -> None:
    """Refuse what only the host decides while one runs."""
    if model is not None or window is not None:
        name = "--model" if model is not None else "--window"
        raise UsageError(f"{name}: the host at {at.url} has this state folder and decides: leave it away")


def seen(key: str, state: Path | None, opened: Opened | None = None) -> dict[str, int]:
    """A session's figures, from its file alone."""
    target, folder = session(key, state), existing(state)
    found = open_session(target.path) if opened is None else opened
    return figures(found, resolve(target, found, read_settings(folder, address.running(state)), folder)[0])


def read_settings(folder: StateFolder, at: Address | None) -> Settings:
    """The configuration; a broken one only changes what is shown while a host runs on an earlier one."""
    try:
        return load(state=folder.root)
    except ConfigError as error:
        if at is None:
            raise
        warn(f"perdure: {error}; the running host began with another, and does it")
        return Settings()
