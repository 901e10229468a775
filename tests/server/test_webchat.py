"""The page of the web chat: how it is served, and that it leans on nothing outside."""

from __future__ import annotations

import re
from typing import Any

import anyio
import httpx2
import pytest
from starlette.applications import Starlette

from perdure.server.webchat import page, route


async def _get(method: str = "GET") -> Any:
    transport = httpx2.ASGITransport(Starlette(routes=[route()]))
    async with httpx2.AsyncClient(transport=transport, base_url="http://host") as client:
        return await client.request(method, "/")


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_page_runs_its_own_script_and_connects_home_alone(loop: str) -> None:
    first, second = anyio.run(_get, backend=loop), anyio.run(_get, backend=loop)
    assert first.status_code == 200
    assert first.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in first.headers["content-security-policy"].split(";"))
    nonce = policy["script-src"].removeprefix("'nonce-").removesuffix("'")
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert first.text.count(f'nonce="{nonce}"') == 2
    assert "@NONCE@" not in first.text
    assert first.headers["content-security-policy"] != second.headers["content-security-policy"]
    assert first.headers["cache-control"] == "no-store"
    assert first.headers["x-content-type-options"] == "nosniff"


def test_only_reading_is_served() -> None:
    assert anyio.run(_get, "HEAD").status_code == 200
    assert anyio.run(_get, "POST").status_code == 405


def test_the_page_names_no_address_and_makes_no_html_of_texts() -> None:
    text = page()
    assert re.findall(r"https?:|//[a-z0-9.-]+\.[a-z]{2,}|@import|url\(", text, re.IGNORECASE) == []
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in text
    assert re.findall(r"\son[a-z]+=|\sstyle=|\ssrc=|javascript:", text) == []
    assert "localStorage" not in text
    assert text.count("<script") == text.count("<style") == 1


def test_every_field_has_a_label_and_the_page_a_language() -> None:
    text = page()
    fields = re.findall(r'<(?:input|textarea)[^>]*\bid="(\w+)"', text)
    assert fields
    assert set(fields) <= set(re.findall(r'<label[^>]*\bfor="(\w+)"', text))
    assert '<html lang="en">' in text
    assert 'name="viewport"' in text
