"""Configuration: one `perdure.toml` (flag > environment > file > default) becomes one frozen `Settings`.

The records of `settings.py` are the schema: keys, types, ranges and choices are read off them, so a
setting exists once. A wrong file yields every finding with its key and what is accepted, never a
traceback. The file is looked for in the state folder only (or where told): a `perdure.toml` in the
working directory of a cloned project could otherwise start processes.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.edges.models.vendors import VENDORS, wrong
from perdure.edges.scheduled import of_time
from perdure.edges.schema import Finding, build
from perdure.edges.settings import Settings
from perdure.edges.spend import known_zone
from perdure.edges.state import state_folder
from perdure.errors import ConfigError

FILE_NAME = "perdure.toml"
MAX_BYTES = 1 << 20  # a configuration is a page; what is larger was given by mistake
SHORT_NAMES = {"PERDURE_MODEL": "models.default", "PERDURE_LOG_LEVEL": "log.level"}


def load(
    path: str | Path | None = None,
    *,
    state: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings in force. `flags` maps dotted keys (`"models.default"`) to values; None is unset.

    `path` (or `PERDURE_CONFIG`) must exist; without either, `perdure.toml` of the state folder is used
    if there (`state`, else `PERDURE_HOME`, else `~/.perdure`).
    Environment: `PERDURE_MODEL`, `PERDURE_LOG_LEVEL`, and any key as `PERDURE_SECTION__KEY`.
    Raises `ConfigError` with the first finding (and how many more there are).
    """
    environ = os.environ if environ is None else environ
    file = _find(path, state, environ)
    table = _read(file) if file is not None else {}
    origin = str(file) if file is not None else "the defaults"
    layers = [
        (table, origin),
        (_from_environment(environ), "the environment"),
        (_nested(flags or {}), "a flag"),
    ]
    settings, findings = build(Settings, layers)
    findings = findings or contradictions(settings, origin)
    if findings:
        more = f" (and {len(findings) - 1} more: `perdure config check`)" if len(findings) > 1 else ""
        raise ConfigError(f"{findings[0]}{more}")
    return settings


def check(path: str | Path) -> list[Finding]:
    """Everything wrong with one file; empty when `load` would take it."""
    try:
        table = _read(Path(path))
    except ConfigError as error:
        return [Finding(str(path), "", str(error).removeprefix(f"{path}: "))]
    settings, findings = build(Settings, [(table, str(path))])
    return findings or contradictions(settings, str(path))


def contradictions(settings: Settings, source: str) -> list[Finding]:
    """Settings that are fine by themselves and can't hold together."""
    guard, pruning, run = settings.guard, settings.pruning, settings.tools.exec
    found = [
        (guard.total > guard.overflow, "guard.total", "above guard.overflow", "at most guard.overflow"),
        (
            pruning.soft_trim_ratio > pruning.hard_clear_ratio,
            "pruning.soft_trim_ratio",
            "above pruning.hard_clear_ratio",
            "at most pruning.hard_clear_ratio",
        ),
        (
            run.timeout_seconds > run.max_timeout_seconds,
            "tools.exec.timeout_seconds",
            "above tools.exec.max_timeout_seconds",
            "at most tools.exec.max_timeout_seconds",
        ),
    ]
    zone = settings.limits.zone
    found.append((not known_zone(zone), "limits.zone", f"{zone!r} is no time zone", "a name such as UTC"))
    for server in settings.mcp:
        one = bool(server.command) != bool(server.url)
        found.append((not one, f"mcp.{server.name}", "neither or both of command and url", "one of them"))
    for tenant in settings.tenants:
        key, both = f"tenants.{tenant.name}", bool(tenant.token_env and tenant.token_sha256)
        found.append((both, key, "both token_env and token_sha256", "one of them"))
        bad = bool(tenant.token_sha256) and not re.fullmatch(r"[0-9a-fA-F]{64}", tenant.token_sha256)
        found.append((bad, f"{key}.token_sha256", "no SHA-256", "64 hex digits"))
    for provider in settings.models.providers:
        key, url = f"models.providers.{provider.name}.base_url", provider.base_url
        problem = f"{url!r} {wrong(url)}" if url else "missing: nobody knows where this provider listens"
        bad = bool(wrong(url)) if url else provider.name not in VENDORS
        found.append((bad, key, problem, "an address such as http://127.0.0.1:8000/v1"))
    for out in settings.outbound:
        key, url = f"outbound.{out.name}.url", out.url
        bad = bool(wrong(url.partition("?")[0])) if url else True
        found.append((bad, key, f"{url!r} is none" if url else "missing", "an address: https://…"))
    told = [Finding(source, key, problem, accepted) for bad, key, problem, accepted in found if bad]
    return told + [Finding(source, key, problem) for key, problem in of_time(settings)]


def _find(path: str | Path | None, state: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    told = path or environ.get("PERDURE_CONFIG")
    if told:
        return Path(told).expanduser()
    candidate = state_folder(state, environ).config
    return candidate if candidate.exists() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: not a regular file: name a {FILE_NAME}")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: can't be read ({reason}): name an existing {FILE_NAME}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES:,} bytes: is this a {FILE_NAME}?")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply: is this a {FILE_NAME}?") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name in sorted(environ):
        if name in SHORT_NAMES and environ[name]:
            flat[SHORT_NAMES[name]] = environ[name]
        elif name.startswith("PERDURE_") and "__" in name:
            flat[name.removeprefix("PERDURE_").lower().replace("__", ".")] = _value(environ[name])
    return _nested(flat)


def _value(text: str) -> Any:
    """A TOML value where the text is one (`3`, `true`, `["a"]`), else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for dotted, value in flat.items():
        if value is None:
            continue
        *parents, last = dotted.split(".")
        node = tree
        for parent in parents:
            below = node.setdefault(parent, {})
            node = below if isinstance(below, dict) else node.setdefault(parent + ".", {})
        node[last] = value
    return tree
