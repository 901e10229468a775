from hypothesis import given
from hypothesis import strategies as st

from perdure.plugins.memories.core.notes import SUPERSEDES, pieces

NOTE = """\
# Team

## Database
- port: 5432
  - in Frankfurt
- user: app <!-- supersedes: database user -->

## Empty

A paragraph
of two lines.

<!-- from: s1 e1 e2 trust: untrusted -->
From the web.
- item
<!-- from: s2 e7 trust: owner -->
Mine.

```py
# no heading

x = 1
```
"""


def test_each_item_and_paragraph_is_a_piece_with_its_lines_and_headings():
    told = [(piece.text, piece.start, piece.end, piece.context) for piece in pieces(NOTE)]
    assert told == [
        ("- port: 5432\n  - in Frankfurt", 4, 5, "Team > Database"),
        ("- user: app", 6, 6, "Team > Database"),
        ("A paragraph\nof two lines.", 10, 11, "Team > Empty"),
        ("From the web.", 14, 14, "Team > Empty"),
        ("- item", 15, 15, "Team > Empty"),
        ("Mine.", 17, 17, "Team > Empty"),
        ("```py\n# no heading\n\nx = 1\n```", 19, 23, "Team > Empty"),
    ]


def test_a_comment_tells_where_what_follows_comes_from():
    told = {piece.text: (piece.entries, piece.trust) for piece in pieces(NOTE)}
    assert told["- port: 5432\n  - in Frankfurt"] == ((), "agent")
    assert told["From the web."] == told["- item"] == (("e1", "e2"), "untrusted")
    assert told["Mine."] == (("e7",), "agent")  # a comment never raises trust above the agent's own


def test_a_trust_that_nobody_knows_is_none():
    (piece,) = pieces("<!-- from: s e trust: highest -->\ntext")
    assert piece.trust == "untrusted"


def test_what_a_mark_supersedes_goes_with_its_piece():
    marks = [said for piece in pieces(NOTE) for subject, said in piece.states if subject == SUPERSEDES]
    assert marks == ["database user"]


def test_a_heading_with_nothing_below_it_is_found_too():
    assert [piece.text for piece in pieces("# A\n\n# B\ntext\n\n# C")] == ["# A", "text", "# C"]


lines = st.lists(
    st.sampled_from(
        ["", "# h", "## h2", "- a", "  - b", "text is 1", "```", "<!-- from: s e -->", "| a |", "\r", "1. x"]
    ),
    max_size=20,
)


@given(lines)
def test_every_piece_stands_where_it_says(said):
    text = "\n".join(said)
    for piece in pieces(text):
        stands = "\n".join(text.split("\n")[piece.start - 1 : piece.end])
        assert piece.text.split() == stands.replace("<!-- from: s e -->", "").split()
