"""Pictures are brought into what providers take: turned, scaled, converted, or refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from helpers_pictures import noise, opened, saved
from perdure.context.pictures.pixels import facts
from perdure.edges import images
from perdure.edges.images import MAX_BYTES, MAX_SIDE, MEDIA, fit, scaler
from perdure.errors import UnreadableFile

SMALL = saved(noise(320, 200), "PNG")


def within(made: images.Fitted) -> None:
    """What every provider takes, and what the record says of it is true."""
    told = facts(made.data)
    assert (told.mime, told.width, told.height) == (made.mime, made.width, made.height)
    assert made.mime in MEDIA
    assert told.side <= MAX_SIDE
    assert len(made.data) <= MAX_BYTES
    assert opened(made.data).size == (made.width, made.height)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_picture_inside_the_limits_stays_byte_for_byte(kind: str) -> None:
    data = saved(noise(320, 200), kind)
    made = fit(data)
    assert (made.data, made.changed) == (data, False)
    within(made)


def test_a_large_picture_keeps_its_shape_inside_the_longest_side() -> None:
    made = fit(saved(noise(2000, 500), "PNG"))
    assert (made.width, made.height) == (MAX_SIDE, MAX_SIDE // 4)
    within(made)
    again = fit(made.data)
    assert (again.data, again.changed) == (made.data, False)


def test_the_configured_side_holds() -> None:
    made = fit(SMALL, 64)
    assert max(made.width, made.height) == 64


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "AVIF"])
def test_a_kind_that_models_do_not_read_is_converted(kind: str) -> None:
    made = fit(saved(noise(300, 200), kind))
    assert made.changed
    assert made.mime == ("image/jpeg" if kind == "AVIF" else "image/png")
    within(made)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "I;16", "F"])
def test_every_mode_of_pixels_is_scaled(mode: str) -> None:
    picture = noise(2000, 50, "L")
    picture = picture.convert("I").convert(mode) if mode == "I;16" else picture.convert(mode)
    within(fit(saved(picture, "TIFF")))


def test_what_was_see_through_stays_so_in_png() -> None:
    clear = Pillow.new("RGBA", (2000, 100), (255, 0, 0, 0))
    assert opened(fit(saved(clear, "PNG")).data).getchannel("A").getextrema() == (0, 0)


def test_a_picture_that_stays_too_heavy_as_png_becomes_a_jpeg_on_white(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 60_000)
    heavy = noise(1500, 1200, "RGBA")
    heavy.putalpha(0)
    made = fit(saved(heavy, "PNG"))
    assert made.mime == "image/jpeg"
    assert len(made.data) <= 60_000
    assert opened(made.data).getpixel((0, 0)) == (255, 255, 255)


def test_quality_goes_before_size(monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved(noise(1000, 1000), "JPEG", quality=95)
    best = saved(opened(saved(noise(1000, 1000), "JPEG", quality=95)), "JPEG", quality=35)
    monkeypatch.setattr(images, "MAX_BYTES", len(best) + 200)
    assert fit(data).width == 1000
    monkeypatch.setattr(images, "MAX_BYTES", len(best) - 200)
    assert fit(data).width == 800


def test_nothing_small_enough_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 100)
    with pytest.raises(UnreadableFile, match="could not be brought under"):
        fit(SMALL)


def test_a_photo_lying_on_its_side_is_turned_upright() -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    lying = saved(noise(300, 100), "JPEG", exif=exif)
    made = fit(lying)
    assert made.changed
    assert (made.width, made.height) == (100, 300)
    assert fit(made.data).changed is False


def test_of_an_animation_that_is_too_large_the_first_frame_is_shown() -> None:
    frames = [Pillow.new("RGB", (2000, 20), color) for color in ("red", "blue")]
    made = fit(saved(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert opened(made.data).convert("RGB").getpixel((0, 0)) == (255, 0, 0)
    assert getattr(opened(made.data), "n_frames", 1) == 1


def test_a_bomb_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 320 * 200 - 1)
    with pytest.raises(UnreadableFile, match="320x200 pixels are too many"):
        fit(SMALL)


def test_a_large_photo_is_decoded_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 4000 * 3000 - 1)
    assert fit(saved(noise(4000, 3000), "JPEG")).width == MAX_SIDE


def test_a_photo_of_a_hundred_megapixels_is_shown_and_one_of_three_hundred_is_too_large() -> None:
    made = fit(saved(Pillow.new("L", (12_000, 9_000)), "JPEG"))
    assert (made.width, made.height) == (MAX_SIDE, 1_176)
    with pytest.raises(UnreadableFile, match="20000x15000 pixels are too many"):
        fit(saved(Pillow.new("L", (20_000, 15_000)), "JPEG"))


def test_no_picture_starts_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def began(*_: Any, **__: Any) -> None:
        raise AssertionError("a program was begun")

    monkeypatch.setattr("subprocess.Popen", began)
    monkeypatch.setattr("subprocess.check_call", began)
    with pytest.raises(UnreadableFile, match="not one that can be read"):
        fit(saved(noise(32, 20), "EPS"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "format"),
        (b"plain words", "format"),
        (SMALL[:-400], "decoded"),
        (b"BM" + bytes(60), "."),
        (SMALL[:40], "."),
    ],
)
def test_what_is_no_picture_or_a_broken_one_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableFile, match=why):
        fit(data)


KINDS = [saved(noise(40, 30), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_bytes_give_a_picture_within_the_limits_or_a_reason(data: Any) -> None:
    whole = bytearray(data.draw(st.sampled_from(KINDS)))
    for _ in range(data.draw(st.integers(0, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        made = fit(bytes(whole[: data.draw(st.integers(1, len(whole)))]))
    except UnreadableFile:
        return
    within(made)


def test_a_kind_the_library_was_built_without_is_left_to_the_models_that_read_it() -> None:
    data = b"\0\0\0\x18ftypheic" + bytes(40)
    assert fit(data) == images.Fitted(data, "image/heic", 0, 0, changed=False)


def test_without_the_library_there_is_no_scaler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scaler() is not None
    monkeypatch.setattr(images, "find_spec", lambda name: None)
    assert scaler() is None


def test_the_same_picture_gives_the_same_bytes_each_time() -> None:
    data = saved(noise(1800, 1200), "JPEG")
    assert fit(data) == fit(data)
