"""What a picture costs in tokens by the API it is sent to: the providers' published rules, from its sides.

Not counted: models that multiply the price of a tile on purpose (OpenAI's small 4o), and the first
Claude models that look at more than about 1.2 megapixels. Usage corrects the rest (`Estimator.learn`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from perdure.context.pictures.pixels import Facts

Price: TypeAlias = Callable[[int, int], int]
FLAT = 2_000  # of a picture whose sides nobody knows


def anthropic(width: int, height: int) -> int:
    """Pixels / 750; larger pictures are scaled down to about 1.2 megapixels first."""
    return max(1, min(1_600, width * height // 750))


def openai(width: int, height: int) -> int:
    """High detail: inside 2048 pixels, then 768 on the shorter side; 85, and 170 for each tile of 512."""
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    return 85 + 170 * _tiles(max(1, int(width * scale)), max(1, int(height * scale)), 512)


def google(width: int, height: int) -> int:
    """258 for a picture up to 384 pixels, else for each tile of 256 to 768 pixels inside 3072."""
    if max(width, height) <= 384:
        return 258
    scale = min(1.0, 3072 / max(width, height))
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    return 258 * _tiles(width, height, min(768, max(256, int(min(width, height) / 1.5))))


def mistral(width: int, height: int) -> int:
    """One for each patch of 28 pixels inside 1540, and one for the end of each row."""
    scale = min(1.0, 1540 / max(width, height))
    rows, columns = _patches(height * scale), _patches(width * scale)
    return rows * (columns + 1)


_BY_API: dict[str, Price] = {
    "google-generative-ai": google,
    "google-gemini-cli": google,
    "google-vertex": google,
    "openai-completions": openai,
    "openai-responses": openai,
    "openai-codex-responses": openai,
    "azure-openai-responses": openai,
    "mistral-conversations": mistral,
}


def price_of(api: str) -> Price:
    """The price rule of an API; Anthropic's where there is no other."""
    return _BY_API.get(api, anthropic)


def tokens(found: Facts, price: Price) -> int:
    """The price of one picture."""
    return price(found.width, found.height) if found.width and found.height else FLAT


def _tiles(width: int, height: int, side: int) -> int:
    return -(-width // side) * -(-height // side)


def _patches(length: float) -> int:
    return max(1, -(-int(length) // 28))
