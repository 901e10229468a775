"""Counts the prompt of a request exactly and says what a prompt cache would have served of it.

The rules are the provider's: prefix order tools → system → messages, entries written at marks only,
read at a mark or up to 20 blocks before it, a life of five minutes or an hour renewed by each hit, a
minimum prefix, readable once the first answer has begun. Time is an argument: the script's clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from perdure.context.cache import contract as cache
from perdure.context.cache.contract import READ_PRICE
from perdure.edges.models.rules.images import decode_head, size_of
from perdure.edges.models.rules.refusal import Json
from perdure.edges.models.tokenizer import TOKENIZER, Tokenizer
from perdure.records import Block, ModelInfo, Record, Text, Thinking, ToolCall, Usage

LOOK_BACK = 20  # positions looked at per mark, its own first
LIFE = {"5m": cache.LIFE["short"], "1h": cache.LIFE["long"]}
WRITE_PRICE = {"5m": cache.WRITE_PRICE["short"], "1h": cache.WRITE_PRICE["long"]}
BY_ITSELF = frozenset({"openai-completions", "openai-responses"})  # prefixes are cached unasked
REQUEST, MESSAGE, BLOCK, TOOL = 3, 4, 0, 8  # tokens of framing
IMAGE_TOKENS, PIXELS_PER_TOKEN = 1600, 750
BLOCKS = 65_536  # blocks whose size is kept: about 12 MB
ENTRIES = 131_072  # cache entries kept: four marks each of 30,000 sessions

_encode = msgspec.json.Encoder().encode


class Part(Record):
    """One block of the prompt: digest of its bytes without the mark, tokens, the mark's life if any.

    `role` stands on the first block of a message.
    """

    digest: bytes
    tokens: int
    life: str = ""
    role: str = ""


class Entry(Record):
    """A cached prefix that this request wrote or read: digest, life, tokens up to there."""

    digest: bytes
    life: str
    tokens: int


class Plan(Record):
    """What one request costs. `writes` become readable and `hits` are renewed at `commit`."""

    tokens: int
    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    writes: tuple[Entry, ...] = ()
    hits: tuple[Entry, ...] = ()

    @property
    def input(self) -> int:
        """Tokens neither read from the cache nor written to it."""
        return self.tokens - self.read - self.write_5m - self.write_1h

    def usage(self, model: ModelInfo, output: int) -> Usage:
        """The usage a provider would report, with its cost in USD. Where caching goes by itself, what is
        written to the cache is input like any other.
        """
        if model.api in BY_ITSELF:
            plain = self.tokens - self.read
            cost = ((plain + READ_PRICE * self.read) * model.price_input + output * model.price_output) / 1e6
            return Usage(plain, output, self.read, 0, round(cost, 10))
        weighed = self.input + READ_PRICE * self.read
        weighed += WRITE_PRICE["5m"] * self.write_5m + WRITE_PRICE["1h"] * self.write_1h
        cost = (weighed * model.price_input + output * model.price_output) / 1e6
        return Usage(self.input, output, self.read, self.write_5m + self.write_1h, round(cost, 10))


class Accounting:
    """The prompt caches of all models behind one key, and the tokenizer that counts for them."""

    def __init__(self, tokenizer: Tokenizer = TOKENIZER, limit: int = ENTRIES) -> None:
        self._tokenizer = tokenizer
        self._limit = limit
        self._cache: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._sizes: OrderedDict[bytes, int] = OrderedDict()  # tokens of blocks, by digest

    @property
    def entries(self) -> int:
        """Cached prefixes that are remembered, dead ones included until they are pushed out."""
        return len(self._cache)

    def text(self, text: str) -> int:
        """Tokens of an answer's text."""
        return self._tokenizer.count(text)

    def cut(self, blocks: tuple[Block, ...], room: int) -> tuple[Block, ...]:
        """What of an answer is written before `room` tokens are used up: text is cut, other blocks end it."""
        kept: list[Block] = []
        for block in blocks:
            size = self.text(written(block))
            if size > room:
                kept += (
                    [Text(self._tokenizer.cut(block.text, room))]
                    if isinstance(block, Text) and room > 0
                    else []
                )
                break
            kept.append(block)
            room -= size
        return tuple(kept)

    def count(self, body: Json) -> int:
        """What `count_tokens` answers: the sum of the three input fields of the same body's usage."""
        return REQUEST + sum(part.tokens for part in self._parts(body))

    def plan(self, body: Json, model: ModelInfo, now: float) -> Plan:
        """Look the prompt up in the cache as it is at `now`, changing nothing."""
        parts = list(self._parts(body))
        total = REQUEST + sum(part.tokens for part in parts)
        marks = [n for n, part in enumerate(parts) if part.life]
        if not marks or not model.caching:
            return Plan(total)
        digests = _digests(parts, marks, f"{model.provider}/{body.get('model', model.id)}", _settings(body))
        sizes = _sizes(parts, marks)
        hit = self._look(digests, marks, now)
        read = sizes_at(parts, hit) if hit >= 0 else 0
        new = [n for n in marks if n > hit and sizes[n] >= model.cache_minimum]
        writes = tuple(Entry(digests[n], parts[n].life, sizes[n]) for n in new)
        used = [n for n in {*marks, hit} if 0 <= n <= hit and self._alive(digests[n], now)]
        hits = tuple(Entry(digests[n], self._cache[digests[n]][1], 0) for n in sorted(used))
        hour = max((entry.tokens for entry in writes if entry.life == "1h"), default=read)
        last = max((entry.tokens for entry in writes), default=read)
        return Plan(total, read, max(0, last - hour), max(0, hour - read), writes, hits)

    def commit(self, plan: Plan, now: float) -> None:
        """The answer begins: what the request wrote can be read from now on, what it hit lives on."""
        for entry in (*plan.hits, *plan.writes):
            self._cache[entry.digest] = (now + LIFE[entry.life], entry.life)
            self._cache.move_to_end(entry.digest)
        while len(self._cache) > self._limit:
            self._cache.popitem(last=False)

    def _alive(self, digest: bytes, now: float) -> bool:
        found = self._cache.get(digest)
        return found is not None and found[0] > now

    def _look(self, digests: dict[int, bytes], marks: list[int], now: float) -> int:
        """Index of the block up to which the cache serves; -1 for a miss. Last mark first."""
        for mark in reversed(marks):
            for n in range(mark, max(-1, mark - LOOK_BACK), -1):
                if self._alive(digests[n], now):
                    return n
        return -1

    def _parts(self, body: Json) -> Iterator[Part]:
        for tool in body.get("tools") or ():
            yield self._part(tool, TOOL)
        system = body.get("system") or ()
        for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
            yield self._part(block, BLOCK)
        last = len(body["messages"]) - 1
        for n, message in enumerate(body["messages"]):
            content, role = message["content"], message["role"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for m, block in enumerate(blocks):
                part = self._part(block, BLOCK if m else MESSAGE, role if m == 0 else "")
                if n == last and m == len(blocks) - 1 and body.get("cache_control") and not part.life:
                    part = Part(part.digest, part.tokens, body["cache_control"].get("ttl", "5m"), part.role)
                yield part

    def _part(self, block: Json, framing: int, role: str = "") -> Part:
        mark = block.get("cache_control")
        bare = {k: v for k, v in block.items() if k != "cache_control"} if mark else block
        key = blake2b(_encode(bare), digest_size=16).digest()
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = self._tokens(bare)
            if len(self._sizes) > BLOCKS:
                self._sizes.popitem(last=False)
        else:
            self._sizes.move_to_end(key)
        return Part(key, framing + size, mark.get("ttl", "5m") if mark else "", role)

    def _tokens(self, block: Json) -> int:
        kind, count = block.get("type"), self._tokenizer.measure
        if kind == "text":
            return count(block["text"])
        if kind == "thinking":
            return count(block["thinking"])
        if kind == "redacted_thinking":
            return len(block["data"]) // 4
        if kind == "image":
            return image_tokens(block)
        if kind == "tool_use":
            return 4 + count(block["name"]) + count(_encode(block["input"]).decode())
        if kind == "tool_result":
            return 4 + self._inside(block.get("content"))
        return count(_encode(block).decode())

    def _inside(self, content: Any) -> int:
        if not content:
            return 0
        if isinstance(content, str):
            return self._tokenizer.measure(content)
        return sum(self._tokens(block) for block in content)


def written(block: Block) -> str:
    """The text that a block cost the model to write."""
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Thinking):
        return block.thinking
    return f"{block.name} {block.arguments.decode('utf-8', 'replace')}" if isinstance(block, ToolCall) else ""


def image_tokens(block: Json) -> int:
    """Width × height / 750 where the bytes tell them, at most what a full picture costs."""
    data = block["source"].get("data")
    head = decode_head(data) if isinstance(data, str) else None
    size = size_of(head) if head else None
    return min(IMAGE_TOKENS, max(1, size[0] * size[1] // PIXELS_PER_TOKEN)) if size else IMAGE_TOKENS


def _settings(body: Json) -> bytes:
    """What loses the cache of the messages, but of nothing before them, when it changes.

    "Images added or removed" is read as: whether there is any image at all.
    """
    pictured = any(
        block["type"] == "image" or (block["type"] == "tool_result" and _holds_image(block))
        for message in body["messages"]
        if type(message["content"]) is list
        for block in message["content"]
    )
    return _encode([body.get("tool_choice"), body.get("thinking"), pictured])


def _holds_image(block: Json) -> bool:
    inner = block.get("content")
    return isinstance(inner, list) and any(b.get("type") == "image" for b in inner)


def _digests(parts: list[Part], marks: list[int], scope: str, settings: bytes) -> dict[int, bytes]:
    """Digests of the prefixes that a look-up may touch: each mark and the blocks before it."""
    wanted = {n for mark in marks for n in range(max(0, mark - LOOK_BACK + 1), mark + 1)}
    chain = blake2b(scope.encode(), digest_size=16)
    out: dict[int, bytes] = {}
    in_messages = False
    for n, part in enumerate(parts[: marks[-1] + 1]):
        if part.role:
            if not in_messages:
                chain.update(settings)
            in_messages = True
            chain.update(part.role.encode())
        chain.update(part.digest)
        if n in wanted:
            out[n] = chain.digest()
    return out


def _sizes(parts: list[Part], marks: list[int]) -> dict[int, int]:
    return {n: sizes_at(parts, n) for n in marks}


def sizes_at(parts: list[Part], n: int) -> int:
    """Tokens of the prompt up to and including block `n`."""
    return sum(part.tokens for part in parts[: n + 1])
