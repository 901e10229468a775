"""Daily budgets of tenants and sessions: what a call may cost is set aside before it, and settled after it.

A call is made at once where the most that it can cost still fits; else alone, when nothing else of the same
tenant or session is under way, so that a cap is overshot by one answer at most. Nothing is left: no call.
Summaries, flushes and refreshes are calls as any other. A subagent's grant is one more cap, of no day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perdure.actors.subagents.account import Account
from perdure.actors.tenancy import Tenancy
from perdure.edges.settings_hosting import LimitSettings
from perdure.edges.spend import Amount, SpendJournal, day_of
from perdure.errors import SpendCap, StorageFailed
from perdure.kernel.clock import Clock
from perdure.kernel.waiter import Waiter
from perdure.records import ModelInfo, Usage

CACHE_WRITE = 2.0  # what a prompt costs at most as a multiple of its plain price: written to the long cache
NONE = Amount()


class Reservation:
    """What one call may cost. `settle` it exactly once; further times do nothing."""

    __slots__ = ("_spending", "account", "least", "most", "number", "settled", "who")

    def __init__(
        self,
        spending: Spending,
        number: int,
        who: tuple[str, ...],
        least: Amount,
        most: Amount,
        account: Account | None = None,
    ) -> None:
        self._spending, self.number, self.who, self.account = spending, number, who, account
        self.least, self.most = least, most
        self.settled = False

    def settle(self, usage: Usage | None) -> None:
        """It cost what was used; `None`: it was begun and nobody knows, so its prompt is counted."""
        if not self.settled:
            self.settled = True
            cost = self.least if usage is None else Amount(usage.cost_usd, usage.prompt + usage.output)
            self._spending.settle(self, cost)


class Spending:
    """The book of today. `journal` is `None` where nothing is capped: it is kept in memory, for `status`."""

    def __init__(
        self, clock: Clock, tenancy: Tenancy, limits: LimitSettings, journal: SpendJournal | None
    ) -> None:
        self._clock, self._tenancy, self._limits, self._journal = clock, tenancy, limits, journal
        self._day = day_of(clock.wall_ms(), limits.zone)
        self._spent: dict[str, Amount] = {}
        self._calls = 0
        if journal is not None:
            self._spent, self._calls = journal.load(self._day)
        self._under_way: dict[str, list[Reservation]] = {}
        self.grants: Callable[[str], Account | None] = lambda _key: None
        self._waiting: dict[str, list[Waiter[None]]] = {}
        self.refused = 0

    @staticmethod
    def capped(tenancy: Tenancy, limits: LimitSettings) -> bool:
        """Whether anything is."""
        own = any(t.usd_per_day or t.tokens_per_day for t in tenancy.listed.values())
        tenant = limits.tenant_usd_per_day or limits.tenant_tokens_per_day
        return bool(own or tenant or limits.session_usd_per_day or limits.session_tokens_per_day)

    def reserve(self, key: str, model: ModelInfo, prompt: int, output: int) -> Reservation | None:
        """Set aside what a call can cost. `None`: wait for `settled`. Raises `SpendCap`, `StorageFailed`."""
        self._turn_day()
        least = Amount(prompt * model.price_input / 1e6, prompt)
        dear = CACHE_WRITE * least.usd + output * model.price_output / 1e6
        most = Amount(dear, prompt + output)
        who, account = self._who(key), self.grants(key)
        if account is not None:
            self._granted(account, least)
        for name in who:
            cap, spent = self._cap(name, key), self._spent.get(name, NONE)
            if over(spent + least, cap) or over(spent, cap, reached=True):
                self.refused += 1
                raise SpendCap(_told(name, spent, cap, self._limits.zone))
        for name in who:
            held = self._under_way.get(name, ())
            full = sum((one.most for one in held), self._spent.get(name, NONE) + most)
            if held and over(full, self._cap(name, key)):
                return None
        if account is not None and not account.hold(most):
            return None
        self._calls += 1
        found = Reservation(self, self._calls, who, least, most, account)
        if self._journal is not None:
            self._journal.append(self._day, who, most, found.number)
        for name in who:
            self._under_way.setdefault(name, []).append(found)
        return found

    async def settled(self, key: str, timeout: float) -> None:
        """Until another call of the same tenant or session has been settled. Raises `DeadlineExceeded`."""
        waiter: Waiter[None] = self._clock.waiter(f"the budget of {key}")
        names = self._who(key)
        for name in names:
            self._waiting.setdefault(name, []).append(waiter)
        try:
            await self._clock.wait(waiter, timeout)
        finally:
            for name in names:
                left = [one for one in self._waiting.pop(name, ()) if one is not waiter]
                if left:
                    self._waiting[name] = left

    def settle(self, call: Reservation, cost: Amount) -> None:
        """A reservation's business. What can't be written is counted here, and stays at the most on disk."""
        self._turn_day()
        if call.account is not None:
            call.account.settle(call.most, cost)
        for name in call.who:
            self._spent[name] = self._spent.get(name, NONE) + cost
            held = [one for one in self._under_way.pop(name, ()) if one is not call]
            if held:
                self._under_way[name] = held
            for waiter in self._waiting.get(name, ()):
                waiter.set()
        if self._journal is not None:
            try:
                self._journal.append(self._day, call.who, cost, call.number)
                if self._journal.grown and not self._under_way:
                    self._journal.rewrite(self._day, self._spent)
            except StorageFailed:
                return

    def lines(self) -> Iterator[dict[str, Any]]:
        """For `status`: who spent how much today, of which cap."""
        self._turn_day()
        for name, spent in sorted(self._spent.items()):
            kind, _, of = name.partition(":")
            cap = self._cap(name, of)
            yield {
                kind: of,
                "day": self._day,
                "usd": round(spent.usd, 6),
                "tokens": spent.tokens,
                "usd_cap": cap.usd or None,
                "tokens_cap": cap.tokens or None,
            }

    def _granted(self, account: Account, least: Amount) -> None:
        try:
            account.admit(least)
        except SpendCap:
            self.refused += 1
            raise

    def _who(self, key: str) -> tuple[str, ...]:
        tenant = f"tenant:{self._tenancy.of(key).name}"
        limits = self._limits
        own = limits.session_usd_per_day or limits.session_tokens_per_day
        return (tenant, f"session:{key}") if own else (tenant,)

    def _cap(self, name: str, key: str) -> Amount:
        limits, (kind, _, of) = self._limits, name.partition(":")
        if kind == "session":
            return Amount(limits.session_usd_per_day, limits.session_tokens_per_day)
        tenant = self._tenancy.named(of)
        usd, tokens = (tenant.usd_per_day, tenant.tokens_per_day) if tenant else (0.0, 0)
        return Amount(usd or limits.tenant_usd_per_day, tokens or limits.tenant_tokens_per_day)

    def _turn_day(self) -> None:
        """At midnight all begin anew; a clock that was set back gives nobody anything."""
        day = day_of(self._clock.wall_ms(), self._limits.zone)
        if day > self._day:
            self._day, self._spent = day, {}

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()


def over(spent: Amount, cap: Amount, *, reached: bool = False) -> bool:
    """Whether that is more than the cap, or (`reached`) the whole of it; a cap of zero is none."""
    usd = cap.usd and (spent.usd >= cap.usd if reached else spent.usd > cap.usd)
    tokens = cap.tokens and (spent.tokens >= cap.tokens if reached else spent.tokens > cap.tokens)
    return bool(usd or tokens)


def _told(name: str, spent: Amount, cap: Amount, zone: str) -> str:
    kind, _, of = name.partition(":")
    caps = [f"{cap.usd:,.2f} USD"] if cap.usd else []
    caps += [f"{cap.tokens:,} tokens"] if cap.tokens else []
    return (
        f"the {kind} {of} has spent {spent.usd:,.4f} USD and {spent.tokens:,} tokens today of "
        f"{' and '.join(caps)}: wait for the next day ({zone}), or raise the cap"
    )
