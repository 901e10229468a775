"""What became of a soak, for people: a page of Markdown, and plots of memory, sleepers and the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.soak import crowd
from benchmarks.soak.run import TRUNCATE_AFTER, WINDOW, Soak

WARM_UP = 2.0  # days
MB = 1024 * 1024


def write(soak: Soak, out: Path) -> Path:
    """`soak.md`, `soak.json` and, where matplotlib is installed, three pictures. The page."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "soak.json").write_text(json.dumps(figures(soak), indent=1) + "\n", encoding="utf-8")
    drawn = _plots(soak.samples, soak.host.services.memory.budget.process, out)
    page = out / "soak.md"
    page.write_text(_page(soak, drawn), encoding="utf-8")
    return page


def slope(samples: list[dict[str, Any]], of: str = "rss", after: float = WARM_UP) -> float | None:
    """Growth a day after the warm-up, as a share of the mean (least squares); None: too little is known."""
    points = [(row["day"], row[of]) for row in samples if row["day"] >= after]
    if len(points) < 12:
        return None
    x, y = sum(p[0] for p in points) / len(points), sum(p[1] for p in points) / len(points)
    rise = sum((a - x) * (b - y) for a, b in points) / max(1e-9, sum((a - x) ** 2 for a, _ in points))
    return float(rise / y)


def figures(soak: Soak) -> dict[str, Any]:
    """All that was counted."""
    last, plan = soak.samples[-1], soak.plan
    memory = soak.host.services.memory
    grown = slope(soak.samples)
    return {
        "sessions": plan.sessions,
        "days_planned": plan.days,
        "days_played": last["day"],
        "stopped": soak.stopped,
        "mix": crowd.mix(plan.sessions),
        **dict(sorted(soak.counts.items())),
        "cpu_seconds": last["cpu"],
        "seconds": last["seconds"],
        "cpu_ms_a_turn": round(1000 * last["cpu"] / max(1, last["turns"]), 2),
        "cache_read_share": round(soak.usage.cache_read / max(1, soak.usage.prompt), 3),
        "memory_mb": plan.memory_mb,
        "rss_most_mb": max(row["rss"] for row in soak.samples) // MB,
        "rss_slope_a_day": None if grown is None else round(grown, 5),
        "awake_most": max(row["awake"] for row in soak.samples),
        "memory": memory.line(),
        "wakings": soak.host.directory.wakings,
        "sleeps": soak.host.directory.sleeps,
        "problems": soak.problems,
        "samples": soak.samples,
    }


def _page(soak: Soak, drawn: list[str]) -> str:
    told = figures(soak)
    grown = told["rss_slope_a_day"]
    rows = [
        ("sessions", f"{told['sessions']:,}"),
        ("virtual days", f"{told['days_played']:.2f} of {told['days_planned']}"),
        ("turns", f"{told.get('turns', 0):,}"),
        ("model calls", f"{told.get('model_calls', 0):,}"),
        ("messages acknowledged", f"{told.get('messages', 0):,} ({told.get('redelivered', 0):,} sent again)"),
        ("compactions, truncations", f"{told.get('compactions', 0):,}, {told.get('truncations', 0):,}"),
        ("wakings, put to sleep", f"{told['wakings']:,}, {told['sleeps']:,}"),
        ("most awake at once", f"{told['awake_most']:,}"),
        ("budget", f"{told['memory_mb']:,} MB resident"),
        ("most resident", f"{told['rss_most_mb']:,} MB"),
        ("slope after two days", "too short to tell" if grown is None else f"{grown:+.2%} a virtual day"),
        ("refused for want of memory", f"{told.get('busy', 0):,}"),
        ("prompts compared after sleep", f"{told.get('probes', 0):,}"),
        ("files read whole at the end", f"{told.get('files_read', 0):,}, {told.get('entries', 0):,} entries"),
        ("prompt tokens read from cache", f"{told['cache_read_share']:.1%}"),
        ("requests refused", f"{told.get('refused_requests', 0):,}"),
        ("violations", f"{told.get('violations', 0):,}"),
        ("time", f"{told['seconds'] / 60:,.1f} min, {told['cpu_seconds'] / 60:,.1f} of CPU"),
        ("CPU a turn, model and tokenizer in it", f"{told['cpu_ms_a_turn']} ms"),
    ]
    kinds = "\n".join(
        f"| {kind.name} | {told['mix'].get(kind.name, 0):,} | {kind.turns} | 1 of {kind.tools[0]} turns, "
        f"{kind.tools[1]} at once | {kind.chars[0]:,}–{kind.chars[1]:,} |"
        for kind in crowd.KINDS
    )
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    pictures = "\n".join(f"![{name}]({name}.png)" for name in drawn)
    problems = "\n".join(f"- {text}" for text in soak.problems) or "None."
    return (
        f"# The soak\n\nEnded: {soak.stopped}. One process, virtual time, a window of {WINDOW:,} tokens, "
        f"truncation after {TRUNCATE_AFTER // 1024} KiB.\n\n| | |\n|---|---|\n{table}\n\n"
        f"## Who\n\n| | sessions | turns a day | calls | characters |\n|---|---|---|---|---|\n{kinds}\n\n"
        f"{pictures}\n\n## What must never happen\n\n{problems}\n"
    )


def _plots(samples: list[dict[str, Any]], line: int, out: Path) -> list[str]:
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    days = [row["day"] for row in samples]
    shares = [row["read"] / max(1, row["prompt"]) for row in samples]
    sheets: dict[str, tuple[str, list[tuple[str, list[float]]]]] = {
        "memory": (
            "MB",
            [
                ("resident", [row["rss"] / MB for row in samples]),
                ("owned by awake sessions", [row["owned"] / MB for row in samples]),
                ("budget", [line / MB] * len(samples)),
            ],
        ),
        "sessions": ("sessions", [(name, [row[name] for row in samples]) for name in ("awake", "asleep")]),
        "cache": ("share of prompt tokens", [("read from cache", shares)]),
    }
    for name, (unit, lines) in sheets.items():
        figure, axes = pyplot.subplots(figsize=(8, 4))
        for label, values in lines:
            axes.plot(days, values, label=label)
        axes.set(xlabel="virtual day", ylabel=unit, ylim=(0, None))
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(out / f"{name}.png", dpi=110, bbox_inches="tight")
        pyplot.close(figure)
    return list(sheets)
