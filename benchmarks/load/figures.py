"""What a phase of load came to, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.measure import percentile


@dataclass(slots=True)
class Tally:
    """What the clients of one kind saw. Times in seconds."""

    first: list[float] = field(default_factory=list)  # from sending a message to the first event about it
    whole: list[float] = field(default_factory=list)  # … to the end of its turn
    refused: int = 0
    reconnected: int = 0
    lost: int = 0  # turns whose end never came

    def line(self) -> dict[str, Any]:
        """In milliseconds."""
        return {
            "turns": len(self.whole),
            "first_p50": ms(self.first, 0.5),
            "first_p99": ms(self.first, 0.99),
            "turn_p50": ms(self.whole, 0.5),
            "turn_p99": ms(self.whole, 0.99),
            "refused": self.refused,
            "reconnected": self.reconnected,
            "lost": self.lost,
        }


@dataclass(slots=True)
class Phase:
    """One phase: `quiet` (all clients well behaved) or `disturbed`."""

    name: str
    seconds: float
    good: Tally
    slow: Tally
    vanishing: Tally
    server: dict[str, float] = field(default_factory=dict)
    control: dict[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """For the report's JSON."""
        told = {name: getattr(self, name).line() for name in ("good", "slow", "vanishing")}
        return {
            "name": self.name,
            "seconds": self.seconds,
            **told,
            "server": self.server,
            "control": self.control,
            "turns_per_second": round(self.turns / self.seconds, 2),
        }

    @property
    def turns(self) -> int:
        """All turns that ended."""
        return sum(len(t.whole) for t in (self.good, self.slow, self.vanishing))


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that must hold."""

    what: str
    measured: str
    met: bool


def ms(values: list[float], share: float) -> float:
    """A percentile in milliseconds, 0 where there is nothing."""
    return round(percentile(values, share) * 1000, 2) if values else 0.0


def stalls(quiet: Phase) -> list[Verdict]:
    """The server's loop against an idle one in the same run."""
    found = []
    for name, most in (("p99", 50.0), ("max", 250.0)):
        own = max(0.0, quiet.server[f"stall_{name}"] - quiet.control[f"stall_{name}"])
        said = f"{own:.1f} ms ({quiet.server[f'stall_{name}']:.1f} less {quiet.control[f'stall_{name}']:.1f})"
        found.append(Verdict(f"loop stall {name} < {most:g} ms ({quiet.name})", said, own < most))
    return found


def beside(quiet: Phase, disturbed: Phase) -> list[Verdict]:
    """What bad neighbours cost the well behaved: p50 at most 1.2 times, p99 at most twice."""
    found = []
    for share, most in ((0.5, 1.2), (0.99, 2.0)):
        was, now = ms(quiet.good.first, share), ms(disturbed.good.first, share)
        ratio = now / was if was else 0.0
        name = f"p{share * 100:g}"
        found.append(
            Verdict(
                f"first event {name} beside slow and vanishing clients <= {most:g}x",
                f"{ratio:.2f}x ({was:.1f} -> {now:.1f} ms)",
                bool(was) and ratio <= most,
            )
        )
    return found


def as_record(verdict: Verdict) -> dict[str, Any]:
    """For the report's JSON."""
    return asdict(verdict)
