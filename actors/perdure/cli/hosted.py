"""A running host's own figures in `perdure status`, merged into what the folder tells, and for a person."""

from __future__ import annotations

from typing import Any

from perdure.cli.output import one_line, say, size, table

Report = dict[str, Any]


def merged(folder: Report, told: Report) -> Report:
    """What the host says goes before what was read from beside; sessions asleep are known from files."""
    found = folder | told
    for name in ("host", "totals"):
        found[name] = folder.get(name, {}) | told.get(name, {})
    if "sessions" in told:
        lines = {line["key"]: line for line in folder.get("sessions", ())}
        awake = {line["key"]: lines.get(line["key"], {}) | line for line in told["sessions"]}
        found["sessions"] = list((lines | awake).values())
    return found


def show(found: Report) -> None:
    """A few lines of at most 100 columns: what is worse than it should be first."""
    for line in found.get("degraded", ()):
        say(f"degraded: {one_line(line, 88)}")
    host, totals, lag = found["host"], found["totals"], found.get("lag") or {}
    rows: list[tuple[str, ...]] = [
        ("sessions", f"{host['awake']:,} awake, {host['asleep']:,} asleep, "
                     f"{size(host['owned_bytes'])} owned"),
        ("turns", f"{totals['turns']:,} ({totals['failed_turns']:,} failed), {totals['steps']:,} steps, "
                  f"{totals['compactions']:,} compactions, {totals['cost_usd']:.4f} USD"),
        ("mail", f"{totals['mail']:,} handled, {totals['refused_mail']:,} refused, "
                 f"{totals['refused_rate']:,} over a rate, {totals['refused_spend']:,} over a budget"),
        ("trouble", f"{totals['crashes']:,} crashes, {totals['lost_jobs']:,} lost jobs, "
                    f"{len(found['parked']):,} parked, {len(found['quarantined']):,} quarantined"),
    ]  # fmt: skip
    if lag:
        rows.append(
            ("loop lag", f"p99 {lag['p99_ms']:.1f} ms, max {lag['max_ms']:.1f} ms, {lag['blocked']} blocked")
        )
    rows.append(("memory", _memory(host.get("memory") or {})))
    rows += [(name, _brief(found.get(name))) for name in ("timers", "outbox", "storage")]
    rows.append(("remembers", _brief(found.get("memory"))))
    rows.append(("log", _brief(found.get("trouble"))))
    rows += [("model", _model(line)) for line in _lines(found.get("models"))]
    rows += [
        ("left alone", f"{line['model']} for {line['seconds']:.0f} s: {line['why']}")
        for line in found.get("fallbacks", ())
    ]
    rows.append(("workers", _workers(_lines(found.get("workers")))))
    rows += [("queue", _queue(line)) for line in _lines(found.get("queues"))]
    say(table([(name, one_line(text, 86)) for name, text in rows if text]))


def _memory(told: Report) -> str:
    if not told:
        return ""
    budget, process = told.get("budget_bytes"), told.get("process_bytes")
    bounds = f"{size(told.get('owned_bytes') or 0)} owned by sessions"
    if budget:
        bounds += f" of {size(budget)}"
    return f"{bounds}; the process may take {size(process)}" if process else bounds


def _model(line: Report) -> str:
    errors = ", ".join(f"{count:,} {kind}" for kind, count in (line.get("errors") or {}).items())
    retries = f", {line['retries']:,} tried again" if line.get("retries") else ""
    return f"{line['name']}: {line['requests']:,} requests{retries}{f'; failed: {errors}' if errors else ''}"


def _workers(lines: list[Report]) -> str:
    """All that are as they should be in a word each; what waits, crashed or is switched off is named."""
    told = []
    for line in lines:
        wrong = [
            f"{line[name]:,} {word}"
            for name, word in (("busy", "busy"), ("queued", "waiting"), ("crashed", "crashed"))
            if line.get(name)
        ]
        if line.get("breaker") not in (None, "closed"):
            wrong.append(f"circuit breaker {line['breaker']}")
        told.append(f"{line['name']} {line['done']:,} done{''.join(f', {each}' for each in wrong)}")
    return "; ".join(told)


def _queue(line: Report) -> str:
    paused = line.get("paused_seconds")
    state = f", paused for {paused:.0f} s" if paused else ""
    refused = f", {line['refused']:,} refused" if line.get("refused") else ""
    calls = f"{line['used']:,} of {line['limit']:,} calls"
    return f"{line['provider']}: {calls}, {line['waiting']:,} wait{refused}{state}"


def _lines(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [{"": name, **(of if isinstance(of, dict) else {"is": of})} for name, of in value.items()]
    return list(value or ())


def _brief(value: Any) -> str:
    """`name value` of what is not nothing."""
    if not isinstance(value, dict):
        return "" if value in (None, [], ()) else str(value)
    told = (
        f"{name} {_word(of)}".strip() for name, of in value.items() if of not in (None, 0, "", [], {}, False)
    )
    return ", ".join(told)


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return f"({_brief(value)})"
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
