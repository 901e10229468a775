"""How many pictures one request may hold, and which go when there are more: the oldest, in jumps."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.context.changed import Changed, Decisions
from perdure.context.pictures import images
from perdure.context.policy import ImageRules, TranscriptPolicy
from perdure.records import Block, Custom, Decision, Image, Item, Items, LedgerLine, ToolResult, User

OLD_IMAGES = "sanitise: older images, over the limit of one request"


def old_images(items: Items, policy: TranscriptPolicy, decided: Decisions) -> Changed:
    """Where a request holds so many images, or so large ones, that limits hold, the oldest become notices.

    The floor is the decision `images`: entry in `value`, images of that entry left out in `head`. It
    moves in jumps, and only when the images above it are too many again.
    """
    places = [(n, m) for n, item in enumerate(items) for m in _image_places(item)]
    if not places:
        return Changed(items)
    first = _floor(items, places, decided.get("images"))
    decisions: tuple[Decision, ...] = ()
    gone = _gone(items, places[first:], policy.images)
    if gone:
        first += gone
        n, _ = places[first]
        skipped = sum(1 for place in places[:first] if place[0] == n)
        decisions = (Decision("images", "limit", head=skipped, value=items[n].entry),)
    if first == 0:
        return Changed(items)
    return _without_images(items, places[:first], decisions)


def size(content: tuple[Block, ...]) -> tuple[int, int]:
    """How many images a message holds, and how many characters of base64 they are together."""
    found = [len(block.data) for block in content if type(block) is Image]
    return len(found), sum(found)


def _gone(items: Items, places: list[tuple[int, int]], rules: ImageRules) -> int:
    """How many of the oldest go: none where all may stay, never all. Half of the room stays free."""
    gone = len(places) - rules.keep_of_many if _too_many(items, places, rules) else 0
    sizes = [len(_image(items, place).data) for place in places]
    if (total := sum(sizes)) > rules.max_total:
        heavy = 0
        while total > rules.max_total // 2 and heavy < len(sizes) - 1:
            total -= sizes[heavy]
            heavy += 1
        gone = max(gone, heavy)
    return gone


def _too_many(items: Items, places: list[tuple[int, int]], rules: ImageRules) -> bool:
    """More than the provider takes, or more than it takes of this size (unknown counts as large)."""
    if len(places) <= rules.many:
        return False
    sides = (images.known(_image(items, place)).side for place in places)
    return len(places) > rules.most or any(not 0 < side <= rules.max_side_many for side in sides)


def _floor(items: Items, places: list[tuple[int, int]], decided: Decision | None) -> int:
    if decided is None:
        return 0
    at = next((n for n, item in enumerate(items) if item.entry == decided.value), -1)
    if at < 0:
        return 0
    return sum(1 for n, _ in places if n < at) + min(decided.head, sum(1 for n, _ in places if n == at))


def _without_images(items: Items, gone: list[tuple[int, int]], decisions: tuple[Decision, ...]) -> Changed:
    out = list(items)
    lines: list[LedgerLine] = []
    for n in sorted({n for n, _ in gone}):
        message = items[n].message
        assert type(message) in (User, ToolResult, Custom)
        taken = {m for k, m in gone if k == n}
        content = tuple(
            images.notice(images.OLDER, block, items[n].entry) if m in taken else block
            for m, block in enumerate(message.content)  # type: ignore[union-attr]
        )
        out[n] = Item(items[n].entry, replace(message, content=content))
        lines.append(LedgerLine(items[n].entry, "placeholder", OLD_IMAGES))
    return Changed(tuple(out), tuple(lines), decisions)


def _image_places(item: Item) -> list[int]:
    message = item.message
    if type(message) is User or type(message) is ToolResult or type(message) is Custom:
        return [m for m, block in enumerate(message.content) if type(block) is Image]
    return []


def _image(items: Items, place: tuple[int, int]) -> Image:
    message = items[place[0]].message
    assert type(message) is User or type(message) is ToolResult or type(message) is Custom
    block = message.content[place[1]]
    assert type(block) is Image
    return block
