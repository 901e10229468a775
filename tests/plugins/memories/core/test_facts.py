import pytest

from perdure.plugins.memories.core.facts import contradicts, facts

CHANGES = [
    ("The database port is 5432.", "The port of the database is now 6000."),
    ("The database port is 5432.", "We changed the database port from 5432 to 6000."),
    ("The database port is 5432.", "- **database port**: 6000"),
    ("Anna lives in Berlin.", "Anna moved to Osaka."),
    ("Anna works at Vela.", "Anna no longer works at Vela."),
    ("Standup starts at 9:15.", "Update: standup starts at 10:30"),
    ("Releases go out on Thursday.", "Releases go out on Monday."),
    ("The plan costs 19 euros.", "The plan costs 24 euros."),
    ("数据库的端口是5432。", "我们把数据库端口改成了6000。"),
    ("数据库端口：5432", "数据库的端口现在是6000"),
    ("小王住在北京。", "小王搬到了深圳。"),
    ("周会的时间是周二", "周会的时间改到周四了"),
    ("データベースのポートは5432です。", "データベースのポートを6000に変更しました。"),
    ("田中さんは大阪に住んでいます。", "田中さんは東京に引っ越しました。"),
    ("当番の責任者は加藤さんです。", "当番の責任者は吉田さんです。"),
]
BOTH_HOLD = [
    ("Anna is my sister.", "Anna is a doctor."),
    ("The port is 5432.", "The host is atlas."),
    ("The database port is 5432.", "The database port is 5432 (Frankfurt)."),
    ("The staging server is in Frankfurt.", "The staging server is slow."),
    ("It is raining.", "It is late."),
    ("数据库的端口是5432。", "缓存的端口是6379。"),
    ("猫は魚を食べた。", "猫は寝ている。"),
    ("We met Tom.", "We met Ann."),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_newer_statement_makes_the_older_one_past(old, new):
    (before,), (after,) = facts(old), facts(new)
    assert before.subject == after.subject
    assert contradicts(after, before)


@pytest.mark.parametrize(("one", "other"), BOTH_HOLD)
def test_statements_that_can_both_hold_do(one, other):
    pairs = [(a, b) for a in facts(one) for b in facts(other) if a.subject == b.subject]
    assert not any(contradicts(b, a) for a, b in pairs)


def test_a_key_below_a_heading_is_about_what_the_heading_names():
    assert facts("- port: 5432", under="Database")[0].subject == facts("The database port is 1")[0].subject
    assert facts("- port: 5432", under="Cache")[0].subject != facts("The database port is 1")[0].subject


@pytest.mark.parametrize(
    "text", ["", "\0", "is", ": : :", "a" * 10_000, "x is " * 5_000, "是" * 1_000, "は" * 1_000]
)
def test_anything_is_read_in_no_time(text):
    assert len(facts(text)) <= len(text)
