"""The laws of context engines as tests: a plugin of pytest, loaded where perdure is installed.

    from perdure.testing.engines import EngineLaws
    from my_package import MyEngine

    laws = EngineLaws(MyEngine)

Each law becomes a test whose name is the law's sentence; `pytest -k pairs` runs a group. Where the plugin
isn't loaded by itself: `pytest_plugins = ["perdure.testing.engines"]`. Without pytest: `perdure engines
check`, or `perdure.testing.conformance.check`.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perdure.testing.laws.law import Law


@dataclass(frozen=True)
class EngineLaws:
    """A module-level value of a test file. `factory` makes the engine, as one that a plugin registers.

    `settings`: of `[plugins.config.NAME]`; `groups`: only these; `deadline`: seconds of a call.
    """

    factory: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    groups: Iterable[str] = ()
    deadline: float = 10.0


class EngineItem(pytest.Item):
    """One law on one loop."""

    def __init__(self, *, checked: EngineLaws, law: Law, loop: Any, **told: Any) -> None:
        super().__init__(**told)
        self.checked, self.law, self.loop = checked, law, loop
        self.extra_keyword_matches |= {law.id, law.group, loop}

    def runtest(self) -> None:
        """Fails with one line: what was expected, what happened, in which history."""
        from perdure.testing.conformance import examine

        told, law = self.checked, self.law
        broken = examine(told.factory, law, self.loop, settings=told.settings, deadline=told.deadline)
        if broken:
            pytest.fail(f"{law.id}: {law.sentence} ({law.source})\n{broken}", pytrace=False)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.name


class EngineCollector(pytest.Collector):
    """The laws of one `EngineLaws`."""

    checked: EngineLaws

    def collect(self) -> Iterable[pytest.Item]:
        from perdure.testing.laws import LAWS

        groups = set(self.checked.groups)
        for law in LAWS:
            for loop in law.loops if not groups or law.group in groups else ():
                name = law.sentence if loop == "asyncio" else f"{law.sentence} ({loop})"
                yield EngineItem.from_parent(self, name=name, checked=self.checked, law=law, loop=loop)


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | None:
    """A value of a test module that is an `EngineLaws`, whatever its name."""
    if not isinstance(obj, EngineLaws):
        return None
    made: EngineCollector = EngineCollector.from_parent(collector, name=name)
    made.checked = obj
    return made
