import anyio
import pytest

from perdure.contracts import Letter, Receipt
from perdure.edges.post import LocalPost
from perdure.errors import Busy
from perdure.records import Text

LETTER = Letter("agent:a", "agent:b", "m-1", (Text("hi"),))


def test_a_letter_reaches_its_delivery_with_its_deadline_and_the_receipt_comes_back():
    seen = []

    async def deliver(letter, deadline):
        seen.append((letter, deadline))
        return Receipt(letter.key, letter.sender, letter.mid, "e-1")

    receipt = anyio.run(LocalPost(deliver).send, LETTER, 5.0)
    assert seen == [(LETTER, 5.0)]
    assert (receipt.entry, receipt.mid) == ("e-1", "m-1")


def test_a_refusal_is_not_a_receipt():
    async def deliver(letter, deadline):
        raise Busy("full")

    with pytest.raises(Busy):
        anyio.run(LocalPost(deliver).send, LETTER, 5.0)
