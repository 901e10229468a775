"""Calls of models, counted in one place whatever serves them: asked, failed by class, tried again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perdure.errors import ModelErrorKind


class Calls:
    """By model reference. A stream that went silent is a `timeout`, one that broke off a `cut`."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._retried: Counter[str] = Counter()
        self._failed: dict[str, Counter[ModelErrorKind]] = {}

    def asked(self, ref: str) -> None:
        """A request goes out."""
        self._asked[ref] += 1

    def failed(self, ref: str, kind: ModelErrorKind) -> None:
        """It came to nothing."""
        self._failed.setdefault(ref, Counter())[kind] += 1

    def retried(self, ref: str) -> None:
        """The same request will go out again."""
        self._retried[ref] += 1

    def lines(self) -> list[dict[str, Any]]:
        """As `status` shows them, by name."""
        return [
            {
                "name": ref,
                "requests": self._asked[ref],
                "errors": dict(sorted(self._failed.get(ref, Counter()).items())),
                "retries": self._retried[ref],
            }
            for ref in sorted({*self._asked, *self._failed})
        ]
