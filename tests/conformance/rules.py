"""What an adapter is made of, and how one case is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

Case: TypeAlias = dict[str, Any]
Check: TypeAlias = Callable[[Case], None]


class Differs(AssertionError):
    """Ours is not what it should be; the text says what differed, short."""


@dataclass(frozen=True)
class Departure:
    """Where ours is right to differ: `applies` looks at the case only, `right` asserts the right value."""

    name: str
    reason: str
    applies: Callable[[Case], bool]
    right: Check


@dataclass(frozen=True)
class Function:
    """How one function of the reference is held against ours.

    `agrees` compares with what was recorded. `always` holds for every case, departed or not.
    """

    agrees: Check
    departures: tuple[Departure, ...] = ()
    always: Check | None = None

    def judge(self, case: Case) -> str:
        """The name of the departure the case falls under, `""` if ours is the recorded value.

        Raises `Differs` (or whatever ours raised) where neither holds.
        """
        if self.always is not None:
            self.always(case)
        for departure in self.departures:
            if departure.applies(case):
                departure.right(case)
                return departure.name
        self.agrees(case)
        return ""


def same(ours: object, right: object, what: str = "result") -> None:
    """Both are equal."""
    if ours != right:
        raise Differs(f"{what}: {_first_difference(ours, right)}")


def holds(truth: object, what: str) -> None:
    """A statement about ours is true."""
    if not truth:
        raise Differs(f"not so: {what}")


def fails(ours: Callable[[], object], what: str = "call") -> None:
    """Ours refuses, as the reference does."""
    try:
        found = ours()
    except Exception:
        return
    raise Differs(f"{what}: {_short(found)}, but the reference throws")


def always(_case: Case) -> bool:
    """For rules that every case of a function falls under."""
    return True


def never(_case: Case) -> NoReturn:
    """For functions that every case departs from."""
    raise Differs("no rule of departure holds for this case")


def has_error(case: Case) -> bool:
    """Whether the reference threw."""
    return isinstance(case["expected"], dict) and "error" in case["expected"]


def number(value: Any) -> float:
    """A JavaScript number, those included that JSON can't hold."""
    return float(value["$js"].replace("Infinity", "inf")) if isinstance(value, dict) else float(value)


def is_number(value: Any) -> bool:
    """Whether JavaScript sees a number here, NaN and the infinities included."""
    if isinstance(value, dict):
        return value.get("$js") in ("NaN", "Infinity", "-Infinity")
    return isinstance(value, int | float) and not isinstance(value, bool)


def _first_difference(ours: object, right: object) -> str:
    if isinstance(ours, list | tuple) and isinstance(right, list | tuple):
        if len(ours) != len(right):
            return f"{len(ours)} instead of {len(right)}: {_short(ours)} instead of {_short(right)}"
        at = next((n for n, (a, b) in enumerate(zip(ours, right, strict=True)) if a != b), 0)
        return f"at {at} {_short(ours[at])} instead of {_short(right[at])}" if ours else "types differ"
    return f"{_short(ours)} instead of {_short(right)}"


def _short(value: object, most: int = 160) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"
