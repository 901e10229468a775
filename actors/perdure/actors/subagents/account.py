"""What a child may still use of its grant: its own calls, what its children hold, and what those used.

A child's grant is set aside from its parent's while it is open; what it did not use comes back with its end,
so the budgets of a tree add up. As with a day's cap, the last answer may go over it, and no other.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.edges.spend import Amount
from perdure.errors import SpendCap

NONE = Amount()


class Account:
    """Of one awake child. `below()`: set aside for its open children, and used by those that have ended."""

    def __init__(self, cap: Amount, own: Amount, below: Callable[[], Amount]) -> None:
        self.cap, self.own, self._below = cap, own, below
        self._held = NONE
        self._calls = 0
        self.exhausted = False

    @property
    def taken(self) -> Amount:
        """What is no longer there for anything new."""
        return self.own + self._below()

    @property
    def left(self) -> Amount:
        """What is; of what has no cap, zero is meant."""
        rest = self.cap - self.taken - self._held
        return Amount(
            max(0.0, rest.usd) if self.cap.usd else 0.0, max(0, rest.tokens) if self.cap.tokens else 0
        )

    def admit(self, least: Amount) -> None:
        """Before a call that takes at least so much. Raises `SpendCap`."""
        taken = self.taken
        if _over(taken + least, self.cap) or _over(taken, self.cap, reached=True):
            self.exhausted = True
            raise SpendCap(
                f"the grant of this subagent is used up: {taken.tokens:,} of {self.cap.tokens:,} tokens, "
                f"{taken.usd:.4f} of {self.cap.usd:.4f} USD (0: no limit)"
            )

    def hold(self, most: Amount) -> bool:
        """Set aside what a call can take. False: another one of this child has to end before."""
        if self._calls and _over(self.taken + self._held + most, self.cap):
            return False
        self._calls += 1
        self._held = self._held + most
        return True

    def settle(self, most: Amount, cost: Amount) -> None:
        """The call is over."""
        self._calls -= 1
        self._held = self._held - most if self._calls else NONE
        self.own = self.own + cost


def _over(taken: Amount, cap: Amount, *, reached: bool = False) -> bool:
    usd = cap.usd and (taken.usd >= cap.usd if reached else taken.usd > cap.usd)
    tokens = cap.tokens and (taken.tokens >= cap.tokens if reached else taken.tokens > cap.tokens)
    return bool(usd or tokens)
