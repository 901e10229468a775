"""Contract shape: the members, their arguments, what an engine says of itself."""

from __future__ import annotations

import inspect
import json
import re

from perdure.contracts import METHODS, EngineInfo, Tool
from perdure.testing.laws.bench import Bench
from perdure.testing.laws.driver import Session
from perdure.testing.laws.histories import TEXT
from perdure.testing.laws.law import Group, expect
from perdure.testing.laws.traces import Traces

law = Group("shape")
REQUIRED = ("ingest", "assemble", "compact")
PLACES = {
    "bootstrap": 1, "ingest": 2, "ingest_batch": 2, "after_turn": 2, "assemble": 2, "compact": 2,
    "maintain": 2, "prepare_subagent_spawn": 2, "on_subagent_ended": 3, "dispose": 0,
}  # fmt: skip


@law("required", "An engine has `info`, `ingest`, `assemble` and `compact`", "contract: ContextEngine")
async def _required(bench: Bench) -> None:
    engine = bench.engine()
    lacks = [name for name in ("info", *REQUIRED) if not hasattr(engine, name)]
    expect(not lacks, "the required members", f"it lacks {', '.join(lacks)}")


@law("optional", "A member of an optional method's name is a method", "contract: optional protocols")
async def _optional(bench: Bench) -> None:
    engine = bench.engine()
    for name in METHODS:
        expect(callable(getattr(engine, name, len)), f"`{name}` to be a method", "it can't be called")


@law("arguments", "Every method takes the arguments that a host gives", "contract: signatures")
async def _arguments(bench: Bench) -> None:
    engine = bench.engine()
    for name in METHODS:
        method = getattr(engine, name, None)
        if method is None:
            continue
        named = {"force": True, "instructions": ""} if name == "compact" else {}
        try:
            inspect.signature(method).bind(*range(PLACES[name]), **named)
        except TypeError as error:
            expect(False, f"`{name}` to take {PLACES[name]} arguments", str(error))


@law("info", "`info` is an EngineInfo with an id that a configuration can name", "contract: EngineInfo")
async def _info(bench: Bench) -> None:
    info = bench.engine().info
    expect(isinstance(info, EngineInfo), "an EngineInfo", f"`info` is a {type(info).__name__}")
    fits = re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", info.id) is not None
    expect(fits, "an id of letters, digits, `.`, `_` and `-`", f"it is {info.id!r}")
    expect(bool(info.name.strip() and info.version.strip()), "a name and a version", "one of them is blank")


@law("info-stays", "`info` stays the same while the engine works", "contract: EngineInfo")
async def _info_stays(bench: Bench) -> None:
    engine = bench.engine()
    before = engine.info
    session = await bench.session(engine).live(TEXT)
    await session.assemble()
    expect(engine.info == before, f"`info` to stay {before!r}", f"it became {engine.info!r}")


@law("lazy", "Making an engine starts no task, thread or process", "design §8: what nothing selects is idle")
async def _lazy(bench: Bench) -> None:
    traces = Traces(bench.root)
    bench.engine()
    expect(not (left := traces.since()), "nothing to run before the first call", left)


@law("instances", "Two engines of one factory share nothing but their store", "design §12.7")
async def _instances(bench: Bench) -> None:
    alone = await bench.session(bench.engine("alone"), store="alone").live(TEXT)
    expected = await alone.answers()
    other = bench.session(bench.engine("other"), "session-2", store="other")
    await other.live(TEXT[2:])
    session = await bench.session(bench.engine("one"), store="one").live(TEXT)
    expect(await session.answers() == expected, "the same answers beside another engine", "they differ")


@law("passive", "A passive engine needs nothing delivered", "contract: EngineInfo.passive")
async def _passive(bench: Bench) -> None:
    engine = bench.engine()
    if not engine.info.passive:
        return
    for session in await bench.histories(engine):
        never = Session(bench, bench.engine("empty"), session.key, session.id, "empty", session.name)
        never.log, never.situation = session.log, session.situation
        same = await never.answers() == await session.answers()
        expect(same, "the same answers without any delivery", "they differ", session.name)


@law("tools", "Offered tools have names of their own and a JSON object as schema", "contract: OffersTools")
async def _tools(bench: Bench) -> None:
    engine = bench.engine()
    offered: tuple[Tool, ...] = getattr(engine, "tools", tuple)()
    names = [tool.spec.name for tool in offered]
    expect(len(set(names)) == len(names), "different names", f"they are {', '.join(names)}")
    again = [tool.spec for tool in getattr(engine, "tools", tuple)()]
    expect([tool.spec for tool in offered] == again, "the same tools each time", "they differ")
    for tool in offered:
        fits = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.spec.name) is not None
        expect(fits, "a name that providers take", f"it is {tool.spec.name!r}")
        schema = json.loads(tool.spec.schema)
        expect(isinstance(schema, dict), "a JSON object as schema", f"{tool.spec.name} has {schema!r}")
