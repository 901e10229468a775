"""Sizes kept from one request to the next are those of measuring everything anew."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers_histories import MESSAGES
from helpers_messages import result, user
from perdure.context.changed import common
from perdure.context.numbers import limits
from perdure.context.results.guard import guard
from perdure.context.results.prune import PruneSettings, prune
from perdure.context.tokens.estimator import CAREFUL, Estimator, Gauge, Measure, measure
from perdure.context.tokens.sizes import Sizes
from perdure.errors import ContextOverflow
from perdure.records import Decision, Item, Items, ToolResult

CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ENTRIES = st.sampled_from(["", *(f"e{n}" for n in range(12))])
ITEMS = st.builds(Item, ENTRIES, st.one_of(MESSAGES, st.just(result("c1", "x" * 3_000))))
# A view and what became of it: so much was kept of the one before, and something new came behind it.
CHANGES = st.lists(st.tuples(st.integers(0, 12), st.lists(ITEMS, max_size=5)), min_size=1, max_size=6)
FORMS = st.sampled_from(["shortened", "trimmed", "placeholder", "pruned"])
DECIDED = st.lists(st.builds(Decision, ENTRIES, FORMS, st.integers(0, 50)), max_size=4).map(
    lambda made: {decision.key: decision for decision in made}
)
LEARNED = Estimator().learn(Measure(40_000, 40_000, 400_000), 50, 9_000)
ESTIMATORS = st.sampled_from([Estimator(), CAREFUL, LEARNED])


def views(changes: list[tuple[int, list[Item]]]) -> list[Items]:
    out: list[Items] = [()]
    for kept, new in changes:
        out.append((*out[-1][:kept], *new))
    return out


@CALM
@given(CHANGES)
def test_following_gives_what_measuring_anew_gives(changes: list[tuple[int, list[Item]]]) -> None:
    kept = Sizes()
    for view in views(changes):
        kept.follow(view, lambda item: measure(item.message))
        found = [measure(item.message) for item in view]
        assert kept.sizes == found
        assert kept.total == sum(found, Measure())
        results = [at for at, item in enumerate(view) if isinstance(item.message, ToolResult)]
        assert kept.results == results
        assert set(kept.places({"e1"})) >= {at for at in results if view[at].entry == "e1"}
        assert all(kept.largest >= found[at].raw for at in results)


@CALM
@given(CHANGES, DECIDED, ESTIMATORS, st.sampled_from([600, 4_000, 200_000]), st.sampled_from([10.0, 900.0]))
def test_guard_and_prune_do_the_same_with_and_without_what_was_kept(
    changes: list[tuple[int, list[Item]]],
    decided: dict[str, Decision],
    estimator: Estimator,
    window: int,
    age: float,
) -> None:
    gauge, line = Gauge(), limits(window)

    def guarded(view: Items, gauge: Gauge | None) -> object:
        try:
            return guard(
                view, fixed_tokens=50, limits=line, estimator=estimator, decided=decided, gauge=gauge
            )
        except ContextOverflow as error:
            return (error.tokens, error.limit, str(error))

    def pruned(view: Items, gauge: Gauge | None) -> object:
        told = PruneSettings(least=100)
        return prune(view, told, window=window, cache_age=age, decided=decided, gauge=gauge)

    for view in views(changes):
        assert guarded(view, gauge) == guarded(view, None)
        assert pruned(view, gauge) == pruned(view, None)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_what_two_views_have_in_common_ends_at_the_first_difference(one: list[int], other: list[int]) -> None:
    a, b = (tuple(Item(str(n), user("x")) for n in numbers) for numbers in (one, other))
    same = next((n for n, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), None)
    assert common(a, b) == (min(len(a), len(b)) if same is None else same)
