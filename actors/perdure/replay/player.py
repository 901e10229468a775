"""Drives a host through a scenario in virtual time, over its crashes, and checks what it expects."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure.actors.services import Timing
from perdure.edges.models import catalog
from perdure.edges.models.accounting import Accounting
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.models.vendors import vendor_of
from perdure.edges.session import keys
from perdure.edges.session.history import History
from perdure.edges.settings import Settings
from perdure.edges.tools.builtin import default_tools
from perdure.errors import ConfigError, PerdureError
from perdure.host import Host
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.kernel import Kernel
from perdure.kernel.virtual import VirtualClock
from perdure.records import Bash, ModelInfo
from perdure.replay import content, cues
from perdure.replay.cast import Stage, answer, cast_tools
from perdure.replay.counts import Observed, failures
from perdure.replay.steps import (
    AbortStep,
    BashStep,
    CommandStep,
    CrashStep,
    ExpectStep,
    FileStep,
    HeartbeatStep,
    ModelChangeStep,
    ModelStep,
    RestartStep,
    Scenario,
    ThinkingStep,
    Timed,
    ToolStep,
    UserStep,
    WaitStep,
    moment,
)
from perdure.replay.watch import Seen, Watch, WatchedModel

HEARTBEAT = (
    "Heartbeat: read HEARTBEAT.md if there is one and do what is due. "
    "If nothing needs attention, reply HEARTBEAT_OK."
)
PLUGINS = "PERDURE_PLUGINS__"
INSTANT = 0.001  # long enough for everything of this instant to have happened
WORKSPACE = "/workspace"  # what prompts and headers say, so that they are the same on every machine
IDLE = 120.0  # seconds of silence that count as a stall: twice the longest latency of a recording
LOOK = 60.0  # virtual seconds between two looks whether a cue can still begin
PATIENCE = 7 * 86400.0  # virtual seconds a step waits for its session before the scenario is given up


class Player:
    """One run. `folder` gets state and workspace; `window`, `seed`, `engine` override the header's."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        window: int | None = None,
        seed: int | None = None,
        engine: str = "",
    ) -> None:
        header = scenario.header
        self.engine = engine or header.engine
        self.scenario, self.folder = scenario, folder
        self.window = window or header.window
        self.clock = VirtualClock(header.seed if seed is None else seed, header.start)
        self.stage, self.watch = Stage(self.clock, cues.followed(scenario)), Watch()
        self.failures: list[str] = []
        self._cues = cues.by_opening(scenario)
        self._models = self._known_models()
        self._texts = any(
            isinstance(s, ExpectStep) and (s.visible or s.hidden or s.findable) for s in scenario.steps
        )
        self._accounting = Accounting()
        self._made: dict[str, WatchedModel] = {}
        self._host: Host | None = None
        self._workspace = folder / "workspace"

    async def play(self) -> dict[str, Any]:
        """Run all steps; the JSON contract of `replay`. Never raises for what a scenario expects."""
        self._workspace.mkdir(parents=True, exist_ok=True)
        async with Kernel(self.clock):  # the driver's own: it outlives the hosts that crash
            await self._run()
        return self.report()

    async def _run(self) -> None:
        await self._start()
        try:
            for at, step in enumerate(self.scenario.steps):
                if not isinstance(step, ModelStep | ToolStep):
                    await self._step(at, step)
            await self._rest(None)
        finally:
            await self._stop()

    # --- hosts ------------------------------------------------------------------------------------

    async def _start(self) -> None:
        header = self.scenario.header
        real = default_tools(Settings()) if header.tools == "default" else ()
        called = [
            name for step in self.scenario.steps if isinstance(step, ModelStep) for name in _called(step)
        ]
        named = () if header.tools == "default" else header.tools
        host = Host(
            self.folder / "state",
            models=self._models,
            factories={info.provider: self._model for info in self._models.values()},
            model=header.model,
            tools=cast_tools(self.stage, real, (*named, *called)),
            workspace=self._workspace,
            shown_workspace=header.cwd or WORKSPACE,
            clock=self.clock,
            timing=Timing(model_idle=IDLE),
            environ={f"{PLUGINS}SLOTS__CONTEXT_ENGINE": self.engine, f"{PLUGINS}STRICT": "true"},
        )
        self._host = await host.__aenter__()
        host.services.events.subscribe("player", self.watch.event)
        await self.clock.sleep(INSTANT)  # interrupted turns are taken up before anything else happens

    async def _stop(self, *, kill: bool = False) -> None:
        host, self._host = self._host, None
        if host is None:
            return
        if kill:
            host.kill()
            for seen in self.watch.sessions.values():
                seen.busy = False
        await host.__aexit__(None, None, None)

    def _model(self, info: ModelInfo) -> WatchedModel:
        if info.ref not in self._made:
            model = ScriptedModel(
                info,
                lambda body, request: answer(self.stage, body, request),
                self.clock,
                accounting=self._accounting,
            )
            self._made[info.ref] = WatchedModel(model, self.watch, self.stage, self._texts)
        return self._made[info.ref]

    def _known_models(self) -> dict[str, ModelInfo]:
        header = self.scenario.header
        found = {header.model: _info(header.model, self.window)}
        for step in self.scenario.steps:
            if isinstance(step, ModelChangeStep):
                found[step.model] = _info(step.model, step.window or self.window)
        return found

    @property
    def host(self) -> Host:
        """The host that runs now."""
        assert self._host is not None
        return self._host

    # --- steps ------------------------------------------------------------------------------------

    async def _step(self, at: int, step: Timed) -> None:
        await self._moment(at, step)
        match step:
            case UserStep():
                await self._say(at, step)
            case HeartbeatStep():
                self._open(at, step.session)
                await self._deliver(
                    step.session, step.text or HEARTBEAT, "heartbeat", f"hb-{at}", "internal_system"
                )
            case CommandStep():
                self._open(at, step.session)
                await self._command(step.session, step.text)
            case AbortStep():
                await self.host.abort(step.session)
            case ModelChangeStep():
                await self._command(step.session, f"/model {step.model}")
            case ThinkingStep():
                await self._command(step.session, f"/think {step.level}")
            case BashStep():
                await self.host.note(step.session, self._bash(step))
            case FileStep():
                self._write(step)
            case CrashStep():
                await self._stop(kill=True)
                await self.clock.sleep(step.down)
                await self._start()
            case RestartStep():
                await self._stop()
                await self.clock.sleep(step.down)
                await self._start()
            case ExpectStep():
                await self._expect(step)
            case WaitStep():
                pass

    async def _moment(self, at: int, step: Timed) -> None:
        """Wait until the step may fire."""
        when = moment(step)
        if when == "rest":
            await self._rest(getattr(step, "session", None))
        elif when in ("during", "after"):
            await self._beside(cues.before(self.scenario.steps, at), when)
        if step.at is not None and step.at > self.clock.now():
            await self.clock.sleep(step.at - self.clock.now())

    async def _beside(self, above: int | None, when: str) -> None:
        """Wait for the cue above to begin (and be half over), or to end; not for one that can't begin."""
        assert above is not None
        cue = self.scenario.steps[above]
        assert isinstance(cue, ModelStep | ToolStep)
        waiter = (self.stage.begun if when == "during" else self.stage.ended)(above)
        while not waiter.done:
            try:
                await self.clock.wait(waiter, LOOK)
            except DeadlineExceeded:
                if not self.watch.of(cue.session).busy:
                    return  # its turn is over: the step comes at rest
        await self.clock.sleep(cue.latency / 2 if when == "during" else INSTANT)

    async def _rest(self, session: str | None) -> None:
        """Wait until the session, or all, rest."""
        until = self.clock.now() + PATIENCE
        while True:
            await self.clock.sleep(INSTANT)
            watched = [self.watch.of(session)] if session else list(self.watch.sessions.values())
            if not any(seen.busy for seen in watched):
                return
            if self.clock.now() > until:
                self.failures.append(f"{session or 'a session'} did not come to rest within a week")
                return
            await self.clock.sleep(0.25)

    def _open(self, at: int, session: str) -> None:
        steering = self.watch.of(session).busy
        self.stage.of(session).open(self._cues.get(at, []), steering=steering)

    async def _say(self, at: int, step: UserStep) -> None:
        self._open(at, step.session)
        blocks = content.said(step)
        mid = step.id or f"step-{at}"
        try:
            await self.host.send(
                step.session, "", sender=step.sender, mid=mid, kind=step.kind, attachments=blocks
            )
        except PerdureError as error:
            self.watch.of(step.session).reply, self.watch.of(step.session).stop = str(error), "refused"
            return
        self.watch.of(step.session).mids.append(mid)

    async def _deliver(self, session: str, text: str, sender: str, mid: str, kind: Any) -> None:
        await self.host.send(session, text, sender=sender, mid=mid, kind=kind)
        self.watch.of(session).mids.append(mid)

    async def _command(self, session: str, line: str) -> None:
        try:
            self.watch.of(session).reply = await self.host.command(session, line)
        except PerdureError as error:
            self.watch.of(session).reply = str(error)

    def _bash(self, step: BashStep) -> Bash:
        return Bash(
            step.command,
            content.text(step),
            step.exit_code,
            step.cancelled,
            excluded=step.excluded,
            timestamp=self.clock.wall_ms(),
        )

    def _write(self, step: FileStep) -> None:
        path = (self._workspace / step.path).resolve()
        if not path.is_relative_to(self._workspace.resolve()):
            raise ConfigError(f"{step.path}: a file step writes inside the workspace only")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.text(step), encoding="utf-8")

    # --- what came of it --------------------------------------------------------------------------

    async def _expect(self, step: ExpectStep) -> None:
        await self.clock.sleep(INSTANT)
        wanted = [step.session] if step.session else list(self.watch.sessions)
        seen = [self._observed(key, step) for key in wanted]
        merged = seen[0] if len(seen) == 1 else _together(seen)
        self.failures += failures(step, merged)

    def _observed(self, key: str, step: ExpectStep) -> Observed:
        seen, cue, path = self.watch.of(key), self.stage.of(key), self._path(key)
        history = History(path) if path.exists() else None
        sought = step.findable or ""
        return Observed(
            reply=seen.reply,
            stop=seen.stop,
            request=seen.request,
            recalled=history.search(sought, 5) if sought and history else "",
            turns=seen.turns,
            steps=seen.steps,
            requests=seen.requests,
            refused=seen.refused,
            compactions=seen.compactions,
            truncations=seen.truncations,
            overflows=seen.overflows,
            errors=seen.errors,
            entries=history.count() if history else 0,
            tool_runs=self.stage.tool_runs.get(key, 0),
            largest=seen.largest,
            lost=self.lost(key),
            unused=cue.unused,
            unscripted=cue.unscripted,
        )

    def lost(self, key: str) -> int:
        """Acknowledged messages of a session that are neither in its file nor in its segments."""
        mids, path = self.watch.of(key).mids, self._path(key)
        if not mids:
            return 0
        return History(path).missing_mids(mids) if path.exists() else len(mids)

    def _path(self, key: str) -> Path:
        return self.folder / "state" / "sessions" / keys.relative_path(key)

    def report(self) -> dict[str, Any]:
        """The JSON contract of `replay`, for one scenario."""
        sessions = [self._session(key) for key in self.watch.sessions]
        refused = sum(s["refused_requests"] for s in sessions)
        return {
            "scenario": self.scenario.header.name,
            "ok": not self.failures and not refused,
            "failures": [*self.failures, *([f"{refused} requests were refused"] if refused else [])],
            "sessions": sessions,
        }

    def _session(self, key: str) -> dict[str, Any]:
        seen, path = self.watch.of(key), self._path(key)
        return {
            "key": key,
            "turns": seen.turns,
            "steps": seen.steps,
            "compactions": seen.compactions,
            "truncations": seen.truncations,
            "overflows": seen.overflows,
            "requests": seen.requests,
            "refused_requests": seen.refused,
            "tokens": {
                "input": seen.usage.input,
                "cache_read": seen.usage.cache_read,
                "cache_write": seen.usage.cache_write,
                "output": seen.usage.output,
            },
            "cost_usd": round(seen.usage.cost_usd, 6),
            "transcript_sha256": sha256(path.read_bytes()).hexdigest() if path.exists() else "",
            "prompts_sha256": seen.prompts.hexdigest(),
        }


def _info(ref: str, window: int) -> ModelInfo:
    try:
        return replace(catalog.resolve(ref), window=window)
    except ConfigError:
        provider, _, name = ref.rpartition("/")
        vendor = vendor_of(provider)
        api = vendor.api if vendor is not None else ModelInfo("", "").api
        return ModelInfo(provider or "scripted", name, api, window=window)


def _called(step: ModelStep) -> list[str]:
    return [call.name for call in content.answered_calls(step)]


def _together(seen: list[Observed]) -> Observed:
    """The counts of several sessions added up; texts are the last one's."""
    if not seen:
        return Observed()
    merged = seen[-1]
    names = [name for name in merged.__struct_fields__ if isinstance(getattr(merged, name), int)]
    add: Callable[[str], int] = lambda name: sum(getattr(each, name) for each in seen)  # noqa: E731
    counts = {name: add(name) for name in names if name != "largest"}
    return replace(merged, **counts, largest=max(each.largest for each in seen))


__all__ = ["Player", "Seen"]
