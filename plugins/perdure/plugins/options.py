"""A plugin's own settings, `[plugins.config.NAME]`, read into a record: the record is schema and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields

from perdure.errors import ConfigError
from perdure.records import Record

R = TypeVar("R", bound=Record)


def read(kind: type[R], settings: Mapping[str, Any], plugin: str) -> R:
    """The record that the table makes. Raises `ConfigError`: which key, what is wrong, what is accepted."""
    known = [field.name for field in fields(kind)]
    unknown = next((key for key in settings if key not in known), None)
    if unknown is not None:
        raise ConfigError(f"plugins.config.{plugin}.{unknown}: unknown key (accepted: {', '.join(known)})")
    try:
        return msgspec.convert(dict(settings), kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise ConfigError(f"plugins.config.{plugin}.{where.rstrip('`')}: {what}") from None
