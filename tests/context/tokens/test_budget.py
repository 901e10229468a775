"""The budget by source adds up, and says who gives way."""

from __future__ import annotations

from helpers_messages import SONNET, call, items, result, says, user
from perdure.context.environment import resolve
from perdure.context.numbers import limits
from perdure.context.tokens.budget import INJECTION_ORDER, SACRIFICE_ORDER, Budget, measure_budget
from perdure.context.tokens.estimator import Estimator


def test_sources_add_up_to_the_request_and_the_limit_is_the_overflow_line() -> None:
    env = resolve("agent:a:x", SONNET, "x" * 4_000, (), limits(100_000), knowledge="k" * 400)
    view = items(user("u" * 400), says(call("c1")), result("c1", "r" * 401), says("a" * 401))
    budget = measure_budget(view, env, Estimator(), env.fixed_tokens)
    assert budget.total == budget.identity + budget.knowledge + budget.history + budget.tools
    assert budget.total == env.fixed_tokens + Estimator().items(view)
    assert (budget.identity, budget.knowledge, budget.tools, budget.limit) == (900, 100, 200, 90_000)


def test_its_fields_are_those_of_the_contract() -> None:
    assert Budget.__struct_fields__ == ("identity", "knowledge", "history", "tools", "total", "limit")


def test_identity_comes_first_and_is_never_sacrificed() -> None:
    assert [source.name for source in INJECTION_ORDER] == ["identity", "knowledge", "history", "tools"]
    assert SACRIFICE_ORDER == ("tools", "history", "knowledge")
