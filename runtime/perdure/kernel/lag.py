"""How late the loop is, and who held it up.

A task beats every 50 ms and keeps how late it woke. A thread looks at the beat: while one is overdue it
samples the stack of the loop's thread, and when the loop goes on the task tells how long it stood and which
frames were seen most. Frames are names of files, lines and functions; no value is read but the key of the
job, or of the actor, whose frames they are.

A pause of the whole process (suspended, stopped, starved by its neighbours) stops the thread, too, and burns
no CPU: it is counted apart and blames nobody. Code in C that keeps the interpreter lock stops the thread and
burns CPU: it is told without frames. Not for virtual time, where nothing may use a thread.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Literal

import anyio

from perdure.kernel.clock import cpu_seconds, monotonic
from perdure.kernel.deadlines import Deadlines
from perdure.kernel.dispatcher import Dispatcher
from perdure.kernel.jobs import Jobs

BEAT = 0.05  # seconds between two looks
KEPT = 1200  # beats that figures are taken from: the last minute
THRESHOLD = 0.2  # seconds that count as a block
STUCK = 10.0  # a block is told while it lasts, once it has lasted so long
FRAMES = 8  # innermost frames of a sample
SAMPLES = 64  # of one block
ONCE_IN = 60.0  # seconds between two reports of one culprit
CULPRITS = 64  # culprits whose last report is remembered
STANDARD = os.path.realpath(sysconfig.get_paths()["stdlib"])
_SITE = os.sep + "site-packages" + os.sep


@dataclass(frozen=True, slots=True)
class Sample:
    """Where the loop's thread was: whose work, the innermost frames, and the one to blame first."""

    owner: str
    frames: tuple[str, ...]
    at: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The loop stood for `seconds`. `kind`: python (frames tell where), native (the interpreter was held by
    code that is not Python), paused (the process did not run). `again`: reports of it left out since the
    last one. `lasts`: it goes on.
    """

    kind: Literal["python", "native", "paused"]
    seconds: float
    owner: str = ""
    at: str = ""
    frames: tuple[str, ...] = ()
    again: int = 0
    lasts: bool = False


@dataclass(frozen=True, slots=True)
class Lag:
    """Scheduling delay in ms over the last minute; `worst` and counts since the start."""

    p50: float
    p99: float
    max: float
    worst: float
    blocked: int
    paused: int


class LagWatch:
    """`run` beside everything else; `report` hears of blocks, from the loop or from the thread."""

    def __init__(self, report: Callable[[Blocked], None], *, threshold: float = THRESHOLD) -> None:
        self._report, self.threshold = report, threshold
        self._late: deque[float] = deque(maxlen=KEPT)
        self._stop = threading.Event()
        self._beat = self._cpu = 0.0
        self._thread_beat = 0.0
        self._loop_thread = 0
        self._samples: list[Sample] = []
        self._told: dict[str, tuple[float, int]] = {}  # culprit: when told last, left out since
        self.worst = 0.0
        self.blocked = self.paused = 0

    def figures(self) -> Lag:
        """What was measured; zeros before the first beat."""
        late = sorted(self._late) or [0.0]
        at = (late[len(late) // 2], late[min(len(late) - 1, len(late) * 99 // 100)], late[-1])
        p50, p99, most, worst = (round(1000 * seconds, 1) for seconds in (*at, self.worst))
        return Lag(p50, p99, most, worst, self.blocked, self.paused)

    async def run(self) -> None:
        """Until cancelled. Its thread ends with it."""
        self._loop_thread = threading.get_ident()
        self._stop.clear()
        self._note_beat()
        watcher = threading.Thread(target=self._watch, name="perdure lag", daemon=True)
        watcher.start()
        try:
            while True:
                before = self._beat
                await anyio.sleep(BEAT)
                self._woke(monotonic() - before - BEAT)
        finally:
            self._stop.set()
            watcher.join(1.0)

    def _note_beat(self) -> None:
        self._samples = []
        self._cpu, self._beat = cpu_seconds(), monotonic()

    def _woke(self, late: float) -> None:
        late = max(0.0, late)
        burnt, samples = cpu_seconds() - self._cpu, self._samples
        self._note_beat()
        if late < self.threshold:
            self._late.append(late)
            self.worst = max(self.worst, late)
            return
        if not samples and burnt < late / 4:  # nothing of us ran, not even the thread
            self.paused += 1
            self._tell(Blocked("paused", late))
            return
        self._late.append(late)
        self.worst = max(self.worst, late)
        self.blocked += 1
        self._tell(_judged(late, samples))

    # --- in the thread ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        stuck = 0.0  # the beat whose block was told while it lasted
        while not self._stop.wait(BEAT):
            beat, now = self._beat, monotonic()
            slept, self._thread_beat = now - self._thread_beat, now
            overdue = now - beat - BEAT
            if overdue < self.threshold / 2:
                continue
            if slept < 4 * BEAT and len(self._samples) < SAMPLES and self._beat == beat:
                self._samples.append(_sample(sys._current_frames().get(self._loop_thread)))
            if overdue > STUCK and stuck != beat:
                stuck = beat
                self._tell(_judged(overdue, self._samples, lasts=True))

    def _tell(self, found: Blocked) -> None:
        """At most once a minute for each culprit."""
        who, now = f"{found.kind} {found.at} {found.lasts}", monotonic()
        last, left_out = self._told.get(who, (-ONCE_IN, 0))
        if now - last < ONCE_IN:
            self._told[who] = last, left_out + 1
            return
        self._told.pop(who, None)
        self._told[who] = now, 0
        if len(self._told) > CULPRITS:
            self._told.pop(next(iter(self._told)))
        self._report(
            Blocked(found.kind, found.seconds, found.owner, found.at, found.frames, left_out, found.lasts)
        )


def _judged(seconds: float, samples: list[Sample], *, lasts: bool = False) -> Blocked:
    if not samples:
        return Blocked("native", seconds, lasts=lasts)
    at = Counter((sample.owner, sample.at) for sample in samples).most_common(1)[0][0]
    seen = next(sample for sample in samples if (sample.owner, sample.at) == at)
    return Blocked("python", seconds, seen.owner, seen.at, seen.frames, lasts=lasts)


# Where a stack becomes the kernel's, and the local that holds whose work it is.
_OWNERS: dict[CodeType, str] = {
    Jobs._guarded.__code__: "job",
    Jobs._settle.__code__: "job",
    Dispatcher.turn.__code__: "ref",
    Deadlines._call.__code__: "timer",
}


def _sample(frame: FrameType | None) -> Sample:
    frames: list[str] = []
    owner = blamed = ""
    while frame is not None:
        local = _OWNERS.get(frame.f_code)
        if local is not None:
            owner = str(getattr(frame.f_locals.get(local), "key", local))
            break
        if len(frames) < FRAMES:
            frames.append(_named(frame))
        if not blamed and not _standard(frame.f_code.co_filename):
            blamed = _named(frame)
        frame = frame.f_back
    return Sample(owner, tuple(frames), blamed or (frames[0] if frames else ""))


def _named(frame: FrameType) -> str:
    folder, name = os.path.split(frame.f_code.co_filename)
    return f"{os.path.basename(folder)}/{name}:{frame.f_lineno} {frame.f_code.co_qualname}"


def _standard(path: str) -> bool:
    return path.startswith((STANDARD, "<frozen")) and _SITE not in path
