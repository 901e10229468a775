"""SIGKILL at any moment: nothing acknowledged is missing, doubled or out of order; no tool runs twice.

`PERDURE_KILLS=50` kills at as many random points (`make kill`); twelve by default.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helpers_forks import FORKS, ensure_forks
from helpers_host import session_path
from helpers_killed import serve
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.history import History
from perdure.edges.session.own import facts_of

KILLS = int(os.environ.get("PERDURE_KILLS", "12"))
KEYS = [f"agent:main:cli:dm:{n}" for n in range(3)]


@pytest.fixture(scope="module", autouse=True)
def _forks() -> None:
    ensure_forks()


class Child:
    """The hosting process: told what to do, heard until it is killed. Forked: it starts in no time."""

    def __init__(self, folder: Path, loop: str) -> None:
        orders, self._orders = FORKS.Pipe(duplex=False)
        self._facts, facts = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=serve, args=(folder, loop, orders, facts))
        self._process.start()
        orders.close()
        facts.close()
        self.facts: list[dict[str, Any]] = []
        self.until("ready")

    def send(self, key: str, mid: str) -> None:
        order = {"key": key, "mid": mid, "text": f"question {mid} " + "and more words " * 40}
        self._orders.send_bytes(json.dumps(order).encode())

    def hear(self) -> dict[str, Any] | None:
        """The next fact, `None` at the end."""
        try:
            self.facts.append(json.loads(self._facts.recv_bytes()))
        except EOFError:
            return None
        return self.facts[-1]

    def until(self, name: str, value: Any = None) -> dict[str, Any]:
        """Listen until that is told."""
        while (fact := self.hear()) is not None:
            if name in fact and value in (None, fact[name]):
                return fact
        raise AssertionError(f"the child ended before it told {name} {value}: {self.facts[-3:]}")

    def kill(self) -> None:
        """As the power goes; what it had told by then is heard."""
        self._process.kill()
        assert self._end() != 0

    def stop(self) -> None:
        """Let it end properly."""
        self._orders.close()
        assert self._end() == 0

    def _end(self) -> int | None:
        while self.hear() is not None:
            pass
        self._process.join(60)
        code = self._process.exitcode
        self._process.close()
        self._orders.close()
        self._facts.close()
        return code


def stored(folder: Path, key: str) -> list[str]:
    """The message ids in a session's past, in their order: entry ids are in order of time, segments not."""
    path = session_path(folder, key)
    if not path.exists():
        return []
    found: list[tuple[str, str]] = []
    for id, raw in History(path).records():
        entry = decode_entry(raw)
        facts = facts_of(entry) if entry.type == "message" else None
        if facts is not None and facts.origin is not None:
            found.append((id, facts.origin.mid))
    return [mid for _, mid in sorted(found)]


class Tale:
    """What was sent and acknowledged over all lives of the host."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sent, self.acked = folder, 0, {key: [] for key in KEYS}  # type: ignore[var-annotated]
        self.unsure: dict[str, str] = {}

    def order(self, child: Child, key: str) -> str:
        """Send the next message of a session."""
        self.sent += 1
        mid = f"m{self.sent:05}"
        self.unsure[mid] = key
        child.send(key, mid)
        return mid

    def learn(self, child: Child) -> None:
        """Take in what a child acknowledged."""
        for fact in child.facts:
            if "ack" in fact and fact["ack"] in self.unsure:
                self.acked[self.unsure.pop(fact["ack"])].append(fact["ack"])
            assert fact.get("refused", 0) == 0
            assert fact.get("stop", "stop") == "stop", fact

    def check(self) -> None:
        """The promise."""
        for key in KEYS:
            found = stored(self.folder, key)
            assert [m for m, n in Counter(found).items() if n > 1] == [], "doubled"
            assert [m for m in self.acked[key] if m not in set(found)] == [], "lost"
            assert [m for m in found if m in set(self.acked[key])] == self.acked[key], "out of order"
        marks = (self.folder / "marks").read_text().split()
        assert [m for m, n in Counter(marks).items() if n > 1] == [], "a tool ran twice"


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_host_killed_at_random_points_keeps_all_it_acknowledged(loop: str, tmp_path: Path) -> None:
    rng, tale = random.Random(f"{loop} {KILLS}"), Tale(tmp_path)
    for _ in range(max(1, KILLS // 2)):
        child = Child(tmp_path, loop)
        first = tale.order(child, rng.choice(KEYS))
        child.until("reply", first)
        for _ in range(rng.randrange(1, 8)):
            tale.order(child, rng.choice(KEYS))
        for _ in range(rng.randrange(0, 40)):  # the moment of death: after so many facts, wherever that is
            if child.hear() is None:
                break
            if rng.random() < 0.2:
                tale.order(child, rng.choice(KEYS))
            if all(f"m{tale.sent:05}" != fact.get("reply") for fact in child.facts):
                continue
            break
        child.kill()
        tale.learn(child)
        tale.unsure.clear()  # never acknowledged: it may be there or not
    child = Child(tmp_path, loop)
    for key in KEYS:
        child.until("reply", tale.order(child, key))
    child.stop()
    tale.learn(child)
    tale.check()
    assert sum(map(len, tale.acked.values())) > KILLS


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_host_killed_in_the_middle_of_a_tool_batch_repairs_it_and_goes_on(
    loop: str, tmp_path: Path
) -> None:
    tale = Tale(tmp_path)
    child = Child(tmp_path, loop)
    mid = tale.order(child, KEYS[0])
    child.until("tool")
    child.kill()
    tale.learn(child)
    child = Child(tmp_path, loop)
    child.send(KEYS[0], mid)  # redelivered: answered by the turn that was taken up
    again = child.until("reply", mid)
    child.until("reply", tale.order(child, KEYS[0]))
    child.stop()
    assert again["stop"] == "stop"
    assert any(fact.get("ack") == mid and fact["repeated"] for fact in child.facts)
    tale.learn(child)
    tale.check()
