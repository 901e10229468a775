"""The ladder: every rung, every failure, and the proof at its end. No model, no clock, no loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_messages import call, items, result, says, user
from perdure.context.compaction.fold import Answered, Ask, Done, Failed, Fold, Reply, Stopped
from perdure.context.compaction.identifiers import HEADING as IDENTIFIERS_HEADING
from perdure.context.compaction.identifiers import Found
from perdure.context.compaction.plan import Pin, Plan, plan
from perdure.context.compaction.prompts import Instructions
from perdure.context.compaction.proof import (
    Draft,
    Proof,
    Refusal,
    compose,
    prove,
    spans,
)
from perdure.context.compaction.size import view_tokens
from perdure.context.numbers import limits
from perdure.context.tokens.estimator import CAREFUL, Estimator
from perdure.edges.models.tokenizer import Tokenizer
from perdure.records import Image, Item, Items, Summary, Text, ToolResult

PLAIN, REAL = Estimator(), Tokenizer()
UUID, SHA = "7f3c9a52-0b1e-4c77-9d6a-3a5c1e9b2f10", "9fceb02d0ae598e95dc970b74767f19372d61af8"
Script = Callable[[Ask], Reply]


def history(turns: int, size: int = 3_000) -> Items:
    made = []
    for n in range(turns):
        made += [user(f"check item {n} please"), says(call(f"c{n}", arguments=f'{{"path":"src/f{n}.py"}}'))]
        made += [result(f"c{n}", "x = 1\n" * (size // 6)), says(f"item {n} is fine")]
    return items(*made)


def planned(view: Items, window: int = 128_000, **more: Any) -> Plan:
    made = plan(view, limits=limits(window), estimator=PLAIN, **more)
    assert isinstance(made, Plan), made
    return made


def pump(made: Plan, script: Script, size: int = 128_000, **more: Any) -> tuple[Done | Stopped, list[Ask]]:
    fold = Fold(made, limits=limits(size), estimator=PLAIN, **more)
    asked = []
    while isinstance(step := fold.step, Ask):
        asked.append(step)
        fold.answer(script(step))
    return step, asked


def done(made: Plan, script: Script, size: int = 128_000, **more: Any) -> Done:
    outcome, _ = pump(made, script, size, **more)
    assert isinstance(outcome, Done), outcome
    return outcome


def always(reply: Reply) -> Script:
    return lambda ask: reply


GOOD = always(Answered("All items so far are fine; next is the rest."))


# --- the good case --------------------------------------------------------------------------------


def test_a_good_summary_is_committed_with_a_proof_of_every_entry() -> None:
    made = planned(history(60))
    outcome = done(made, GOOD)
    assert outcome.rung == "staged"
    assert outcome.proof.entries == len(made.covered) == sum(span.count for span in outcome.proof.spans)
    assert outcome.proof.tokens_after < outcome.proof.tokens_before
    assert (outcome.proof.first, outcome.proof.last) == (made.covered[0].entry, made.covered[-1].entry)


def test_a_long_history_is_summarised_in_two_parts_and_merged() -> None:
    _, asked = pump(planned(history(120), 32_000), GOOD, 32_000)
    assert asked[-1].stage == "merge"
    assert "[Part 1 of 2]" in asked[-1].prompt


def test_every_request_fits_the_summariser_and_asks_for_little() -> None:
    view = (*history(90, 9_000), *items(*[says("thought " * 900) for _ in range(60)]))
    view = tuple(Item(f"e{n}", item.message) for n, item in enumerate(view))
    outcome, asked = pump(planned(view, 64_000), GOOD, 64_000, window=20_000, max_output=4_000)
    assert isinstance(outcome, Done)
    for ask in asked:
        assert REAL.count(ask.system) + REAL.count(ask.prompt) + ask.max_tokens <= 20_000
        assert ask.max_tokens <= 4_000


def test_a_summary_never_asks_for_more_output_than_every_model_has() -> None:
    _, asked = pump(planned(history(80), 1_000_000, force=True), GOOD, 1_000_000, max_output=64_000)
    assert {ask.max_tokens for ask in asked} == {8_192}


def test_no_bytes_of_images_and_no_details_are_in_a_request() -> None:
    shot = ToolResult(
        "c1", "chart", (Text("chart_id=3"), Image("QUJD" * 9_000, "image/png")), details=b'"raw!"'
    )
    view = items(user("chart"), says(call("c1", "chart")), shot, says("a pie"), user("next"))
    _, asked = pump(planned(view, force=True), GOOD)
    assert "chart_id=3" in asked[0].prompt
    assert "QUJD" not in asked[0].prompt
    assert "raw!" not in asked[0].prompt


# --- what a summary lost --------------------------------------------------------------------------


def test_identifiers_that_the_summary_lost_are_carried_beside_it_byte_for_byte() -> None:
    view = items(
        user(f"watch run {UUID} on db-2.internal:6543\n" + "log line ok\n" * 8_000),
        says(f"commit {SHA} deployed"),
        says("and it is still running"),
    )
    outcome = done(planned(view), always(Answered("The run was fine.")))
    for name in (UUID, "db-2.internal:6543"):
        assert name in outcome.summary
        assert name in outcome.proof.carried
    off = done(planned(view), always(Answered("Fine.")), rules=Instructions(identifiers="off"))
    assert off.proof.identifiers == 0


def test_what_the_summary_kept_is_not_said_twice_but_whose_names_are_the_user_s_is() -> None:
    view = items(user(f"run {UUID} " + "x" * 90_000), says(f"commit {SHA}"), says("ok"))
    outcome = done(planned(view, keep=1), always(Answered(f"Run {UUID} of commit {SHA} goes on.")))
    _, listed = outcome.summary.split(IDENTIFIERS_HEADING)
    assert UUID in listed
    assert SHA not in listed
    assert outcome.proof.carried == ()


def test_the_running_request_stands_in_the_summary_word_for_word() -> None:
    request = "rename ALL of them,\n  日本語 too, not the tests!"
    steps = [m for n in range(80) for m in (says(call(f"c{n}")), result(f"c{n}", "x" * 2_000))]
    outcome = done(planned(items(user(request), *steps), running=True), GOOD)
    assert request in outcome.summary
    assert outcome.proof.pins == ("e1",)


def test_a_key_that_the_model_copied_is_left_out_of_the_summary() -> None:
    outcome = done(planned(history(60)), always(Answered("The key is sk-ant-api03-abcdefghijklmnopqrst.")))
    assert "sk-ant" not in outcome.summary


# --- answers that are no summary ------------------------------------------------------------------

BAD = {
    "empty": Answered(" \n"),
    "refused": Answered("I can't help"),
    "cut": Answered("all three words", "length"),
    "skeleton": Answered("## Goal\nNone.\n## Decisions\nNone."),
    "echo": Answered("item 59 is fine"),
}


@pytest.mark.parametrize("flaw", BAD)
def test_an_answer_that_is_no_summary_ends_in_the_digest_with_a_proof(flaw: str) -> None:
    outcome = done(planned(history(60)), always(BAD[flaw]))
    assert outcome.rung == "digest"
    assert outcome.summary.startswith("Context contained ")
    assert "check item 0 please" in outcome.summary
    assert {span.how for span in outcome.proof.spans} == {"digested"}
    assert any(flaw in tried for tried in outcome.tried)


def test_a_summary_larger_than_what_it_covers_is_not_committed_and_the_next_rung_is_tried() -> None:
    outcome = done(planned(history(60)), always(Answered("summary " * 40_000)))
    assert outcome.rung == "digest"


def test_where_no_rung_is_smaller_nothing_is_written_and_the_verdict_says_so() -> None:
    tiny = items(user("a"), says("b"), user("c"), says("d"))
    outcome, _ = pump(planned(tiny, force=True), always(Answered("summary " * 4_000)))
    assert isinstance(outcome, Stopped)
    assert outcome.why == "hopeless"


# --- a model that fails ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["transport", "timeout", "rate_limit", "overloaded", "auth", "billing"])
def test_an_unreachable_model_defers_fails_or_gives_way_by_who_asked(kind: Any) -> None:
    made = planned(history(60))
    deferred, asked = pump(made, always(Failed(kind)), trigger="threshold")
    assert isinstance(deferred, Stopped)
    assert (deferred.why, len(asked)) == ("deferred", 1)
    commanded, _ = pump(made, always(Failed(kind)), trigger="manual")
    assert isinstance(commanded, Stopped)
    assert commanded.why == "failed"
    assert done(made, always(Failed(kind)), trigger="overflow").rung == "digest"


def test_an_abort_aborts_on_any_rung() -> None:
    outcome, asked = pump(planned(history(60)), always(Failed("aborted")), trigger="overflow")
    assert isinstance(outcome, Stopped)
    assert (outcome.why, len(asked)) == ("aborted", 1)


def test_an_ended_fold_takes_no_reply() -> None:
    fold = Fold(planned(history(60)), limits=limits(128_000), estimator=PLAIN)
    fold.answer(Failed("aborted"))
    with pytest.raises(ValueError, match="ended"):
        fold.answer(Answered("late"))


def test_a_chunk_that_fails_is_digested_and_the_others_are_summarised() -> None:
    def script(ask: Ask) -> Reply:
        return (
            Failed("overflow")
            if ask.rung == "staged" or "check item 7 please" in ask.prompt
            else Answered("Fine.")
        )

    made = planned(history(120), 32_000)
    outcome = done(made, script, 32_000)
    assert outcome.rung == "subsets"
    assert {span.how for span in outcome.proof.spans} == {"summarised", "digested"}
    assert "check item 7 please" in outcome.summary


def test_a_model_that_fails_at_once_on_small_subsets_too_is_not_asked_for_ever() -> None:
    outcome, asked = pump(planned(history(150), 32_000), always(Failed("overflow")), 32_000)
    assert isinstance(outcome, Done)
    assert len(asked) <= 4


def test_a_message_too_large_to_summarise_is_noted_and_the_rest_summarised() -> None:
    log = user("line of a pasted log\n" * 20_000)
    view = tuple(Item(f"e{n}", i.message) for n, i in enumerate((*items(log), *history(40))))

    def script(ask: Ask) -> Reply:
        return Failed("overflow") if "pasted log" in ask.prompt else Answered("Fine.")

    outcome = done(planned(view), script)
    assert outcome.rung == "partial"
    assert "[Large user (~105K tokens) omitted from summary]" in outcome.summary
    assert outcome.proof.spans[0].how == "noted"


def test_a_turn_of_nothing_but_a_huge_message_is_noted_without_any_call() -> None:
    view = items(user("line of a pasted log\n" * 60_000), user("and now?"))
    outcome, asked = pump(planned(view, running=True), GOOD)
    assert isinstance(outcome, Done)
    assert asked == []
    assert "[Large user (~315K tokens) omitted from summary]" in outcome.summary


def test_an_earlier_summary_is_never_forgotten_whatever_the_rung() -> None:
    view = (Item("s", Summary("The colour is blue.")), *history(60))
    _, asked = pump(planned(view), GOOD)
    assert "The colour is blue." in asked[-1].prompt
    assert "The colour is blue." in done(planned(view), always(BAD["empty"])).summary


# --- the proof ------------------------------------------------------------------------------------


def test_the_proof_at_commit_counts_what_the_view_gained_meanwhile() -> None:
    made = planned(history(60))
    outcome = done(made, GOOD)
    grown = tuple(Item(f"g{n}", item.message) for n, item in enumerate(history(5)))
    again = outcome.prove_again(grown, limits=limits(128_000), estimator=PLAIN)
    assert isinstance(again, Proof)
    gained = view_tokens(grown, limits(128_000), PLAIN)
    assert again.tokens_after - outcome.proof.tokens_after == pytest.approx(gained, abs=1)


def test_a_proof_is_refused_for_what_is_missing() -> None:
    made = planned(history(60))
    made = Plan(made.before, made.covered, made.kept, made.first_kept, pins=(Pin("e9", "the pin"),))
    whole = Draft("A summary.", "staged", spans(made.covered, ["summarised"] * len(made.covered)))
    short = Draft("A summary.", "staged", spans(made.covered[1:], ["summarised"] * (len(made.covered) - 1)))
    found = Found((UUID,))
    full = compose("A summary.", made.pins, found)

    def refused(draft: Draft, summary: str) -> str:
        outcome = prove(made, draft, summary, found=found, limits=limits(128_000), estimator=PLAIN)
        return outcome.reason if isinstance(outcome, Refusal) else ""

    assert refused(whole, full) == ""
    assert refused(whole, full.replace("the pin", "a pin")) == "pin missing"
    assert refused(whole, full.replace(UUID, UUID[:-1])) == "identifier missing"
    assert refused(short, full) == "entry not covered"
    assert refused(Draft(" ", "staged", whole.spans), full) == "empty"
    assert refused(Draft("## Goal\nNone.", "staged", whole.spans), full) == "skeleton"
    assert refused(whole, full + " word" * 180_000) == "not smaller"


REPLIES = st.sampled_from(
    [*BAD.values(), Answered("Fine so far."), Answered("x " * 40_000), Failed("overflow"), Failed("invalid")]
)


@settings(max_examples=12, deadline=None)
@given(st.lists(REPLIES, max_size=12), st.integers(30, 40), st.sampled_from([16_000, 32_000, 128_000]))
def test_whatever_a_faulty_model_says_nothing_is_done_without_a_proof_that_shrinks(
    replies: list[Reply], turns: int, window: int
) -> None:
    made = planned(history(turns, 4_000), window)
    script = iter(replies)
    outcome, _ = pump(made, lambda ask: next(script, Answered("Fine.")), window)
    assert isinstance(outcome, Done)
    assert outcome.proof.tokens_after < outcome.proof.tokens_before
    assert sum(span.count for span in outcome.proof.spans) == len(made.covered)
    assert outcome.draft.body.strip()


def test_sizes_of_requests_are_taken_carefully() -> None:
    _, asked = pump(planned(history(60)), GOOD)
    assert all(ask.tokens == CAREFUL.text(ask.prompt) + CAREFUL.text(ask.system) for ask in asked)
