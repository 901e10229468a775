"""The settings of `memory-core`, `[plugins.config.memory-core]`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.plugins.search.stages import NAMES, Stages
from perdure.records import Record

Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Settings(Record):
    """`off`: names of retrieval stages that don't run. `min_score`: results below it are not told.

    `citations`: whether snippets name their source: "on", "off", or "auto", in direct conversations only.
    `vectors`: "bit" compares signs first and the nearest exactly, "float" every vector exactly.
    """

    max_results: Annotated[int, Meta(ge=1, le=50)] = 6
    min_score: Share = 0.0
    citations: Literal["auto", "on", "off"] = "auto"
    half_life_days: Annotated[float, Meta(gt=0)] = 30.0
    vectors: Literal["bit", "float"] = "bit"
    off: tuple[Literal[*NAMES], ...] = ()  # type: ignore[valid-type]

    def stages(self, most: int, chars: int) -> Stages:
        """The stages of one search."""
        switched = dict.fromkeys(self.off, False)
        changed = Stages(most=most, chars=chars, half_life_days=self.half_life_days)
        return msgspec.structs.replace(changed, **switched)
