"""Every engine that ships keeps every law of the conformance kit.

`retrieval` indexes what each law tells it: those that decide whether a session survives its engine are here,
all of them in `make laws`.
"""

from __future__ import annotations

import os

from perdure.plugins.shipped import ENGINES
from perdure.testing.engines import EngineLaws

FULL = os.environ.get("PERDURE_LAWS") == "full"

legacy = EngineLaws(ENGINES["legacy"])
lossless = EngineLaws(ENGINES["lossless"])
similarity = EngineLaws(ENGINES["similarity"])
cross_session = EngineLaws(ENGINES["cross-session"])
retrieval = EngineLaws(
    ENGINES["retrieval"],
    groups=() if FULL else ("ingest", "redelivery", "pairs", "budget", "isolation", "bootstrap"),
)


def test_no_engine_that_ships_is_left_out() -> None:
    here = {name.replace("_", "-") for name, value in globals().items() if isinstance(value, EngineLaws)}
    assert here == set(ENGINES)
