import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.edges import segments
from perdure.edges.segments import Moved, Segment
from perdure.errors import UnreadableFile


def made(path, entries, **more):
    return segments.write_segment(path, entries, session_id="s-1", sync=False, **more)


def some(count, size=50):
    return [Moved(f"e{n}", n * 100, (f"{n} " * size).encode()) for n in range(count)]


ids = st.text(st.characters(), max_size=5)  # lone surrogates, too


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(ids, st.binary(min_size=1, max_size=300), max_size=20), st.integers(100, 1000))
def test_every_entry_is_read_back_byte_for_byte(tmp_path_factory, entries, block):
    path = tmp_path_factory.mktemp("s") / "s.jsonl"
    moved = [Moved(id, n, raw) for n, (id, raw) in enumerate(entries.items())]
    original, segments.BLOCK = segments.BLOCK, block
    try:
        info = made(path, moved)
    finally:
        segments.BLOCK = original
    segment = Segment(segments.folder(path) / info.name)
    assert list(segment.entries()) == moved
    assert all(segment.read(each.id) == each.raw for each in moved)
    assert (info.entries, info.raw_bytes) == (len(moved), sum(len(each.raw) for each in moved))
    segment.verify(info.digest)


def test_segments_of_a_session_are_found_by_id_and_text_newest_first(tmp_path):
    path = tmp_path / "s.jsonl"
    assert segments.segments_of(path) == ()
    assert segments.find_entry(path, "a") is None
    made(path, [Moved("a", 0, b"red one")])
    made(path, [Moved("b", 0, b"red two"), Moved("c", 9, b"blue")])
    assert segments.find_entry(path, "a") == b"red one"
    assert segments.find_entry(path, "missing") is None
    assert [hit.id for hit in segments.search(path, b"red", 5)] == ["b", "a"]
    assert [hit.id for hit in segments.search(path, b"red", 1)] == ["b"]
    assert [each.name[:5] for each in segments.segments_of(path)] == ["0001-", "0002-"]


def test_discarding_one_is_explicit_and_says_what_it_freed(tmp_path):
    path = tmp_path / "s.jsonl"
    info = made(path, some(3))
    assert segments.discard(path, info.name) == info.size
    assert segments.segments_of(path) == ()


def test_damage_at_any_byte_is_noticed(tmp_path):
    path = tmp_path / "s.jsonl"
    info = made(path, some(20))
    file = segments.folder(path) / info.name
    good = file.read_bytes()
    for at in range(len(segments.MAGIC), len(good), 7):
        file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(UnreadableFile) as told:
            Segment(file).verify(info.digest)
        assert "\n" not in str(told.value)
    for cut in (0, 10, len(good) - 1):
        file.write_bytes(good[:cut])
        with pytest.raises(UnreadableFile):
            Segment(file).verify(info.digest)


def test_a_write_that_fails_leaves_nothing(tmp_path):
    path = tmp_path / "s.jsonl"

    def breaks():
        yield from some(2)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        made(path, breaks())
    assert list(segments.folder(path).iterdir()) == []


def test_one_entry_costs_one_block(tmp_path, monkeypatch):
    path = tmp_path / "s.jsonl"
    info = made(path, some(40, size=20_000))
    segment = Segment(segments.folder(path) / info.name)
    assert len(segment.index.blocks) > 5
    read = []
    monkeypatch.setattr(Segment, "_block", lambda self, n: read.append(n) or b"")
    segment.read("e20")
    assert len(read) == 1
