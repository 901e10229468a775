"""Call ids: a result goes with the call it answers, whatever ids a provider gives again."""

from __future__ import annotations

from helpers_messages import SONNET, call, items, result, says
from perdure.context.policy import policy_for
from perdure.context.safety.ids import normalise
from perdure.context.safety.repair import calls_of
from perdure.records import Assistant, ToolResult


def test_a_result_belongs_to_the_call_of_its_own_turn_though_an_older_one_is_open() -> None:
    said = says(call("exec_0"))
    done = normalise(items(said, said, result("exec_0")), policy_for(SONNET))
    first, second, answer = (item.message for item in done.items)
    assert isinstance(first, Assistant)
    assert isinstance(second, Assistant)
    assert isinstance(answer, ToolResult)
    assert answer.call_id == calls_of(second)[0].id != calls_of(first)[0].id
