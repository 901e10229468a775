"""Engines that ship, in a host: what they store of a session against what its file has."""

from __future__ import annotations

import json
from pathlib import Path

from helpers_host import KEY, messages, session_path
from perdure.edges.settings import PluginSettings, Settings, SlotSettings
from perdure.host import Host
from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.engine import Lossless
from perdure.plugins.engines.retrieval.index import Index, folder_of


def slot(engine: str, *, strict: bool = False) -> Settings:
    """Settings of a host whose sessions have this engine."""
    return Settings(plugins=PluginSettings(slots=SlotSettings(context_engine=engine), strict=strict))


def id_of(folder: Path, key: str = KEY) -> str:
    return str(json.loads(session_path(folder, key).read_bytes().split(b"\n")[0])["id"])


async def agrees(host: Host, folder: Path, engine: str, key: str = KEY) -> None:
    """What the engine has of a session is what its file has."""
    stored = [entry["id"] for entry in messages(session_path(folder, key))]
    if engine == "lossless":
        assert await in_lossless(host, id_of(folder, key)) == stored
    if engine == "retrieval":
        index = Index(folder_of(folder / "state" / "plugins" / engine, id_of(folder, key)))
        try:
            assert list(index.state.behind("")) == stored
            found = index.search("blue heron", without=set(), tokens=1_000, most=5, now=0)
            assert any("heron" in chunk.text for chunk in found)
        finally:
            index.close()


async def in_lossless(host: Host, id: str) -> list[str]:
    """Entries of a session's path in the engine's store, which is sound."""
    engine = host.services.engines.of("lossless").engine
    assert isinstance(engine, Lossless)
    assert not await engine.check(id)
    store = await engine.sessions.store()
    with store.db.reading() as db:
        session = rows.session(db, id)
        assert session is not None
        return [raw.entry for raw in rows.raws(db, session.no)]
