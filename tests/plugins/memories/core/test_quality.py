"""What is found of a corpus of our own, in English, Chinese, Japanese and code, and what each stage adds."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from benchmarks.recall import ablation

        yield dict(ablation(tmp_path_factory.mktemp("recall")))


def test_the_right_passage_is_among_five_in_every_language(scores):
    score = scores["all stages"]
    assert score.recall >= 97
    assert score.first >= 90
    assert min(score.by_language.values()) >= 95, score.by_language


def test_of_facts_that_change_the_newest_stands_first_and_older_ones_are_told_as_past(scores):
    score = scores["all stages"]
    assert score.newest >= 95
    assert score.labelled >= 95
    assert score.mislabelled == 0


@pytest.mark.parametrize(
    ("stage", "figure", "worse"),
    [
        ("expansion", "recall", 1.0),
        ("keyword", "recall", 5.0),
        ("decay", "newest", 20.0),
        ("diversity", "recall", 0.3),
        ("rerank", "first", 5.0),
    ],
)
def test_a_stage_earns_its_place(scores, stage, figure, worse):
    assert getattr(scores[f"without {stage}"], figure) <= getattr(scores["all stages"], figure) - worse


def test_the_least_relevance_keeps_wrong_results_away(scores):
    assert scores["without relevance"].wrong >= 1.5 * scores["all stages"].wrong


def test_both_lookups_together_find_more_than_either(scores):
    assert scores["all stages"].recall >= max(scores["keyword alone"].recall, scores["vector alone"].recall)


def test_every_stage_can_be_off(scores):
    assert all(score.recall >= 80 for score in scores.values())
