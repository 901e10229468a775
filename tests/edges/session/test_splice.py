import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.edges.session import splice

texts = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=5)


@given(objects, texts, values, st.sampled_from([None, 1]), st.booleans())
def test_one_value_changes_and_nothing_else(thing, key, value, indent, ascii_only):
    raw = json.dumps(thing, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    edited = splice.put(raw, key, value)
    assert json.loads(edited.decode("utf-8", "surrogatepass")) == thing | {key: value}
    if (span := splice.value_span(raw, key)) is not None:
        assert edited.startswith(raw[: span[0]])
        assert edited.endswith(raw[span[1] :])


def test_the_last_of_two_fields_of_one_name_counts_as_in_every_json_reader():
    assert splice.put(b'{"a":1,"b":2,"a":3}', "a", None) == b'{"a":1,"b":2,"a":null}'


def test_a_name_inside_a_nested_object_or_text_is_not_the_field():
    raw = rb'{"x":{"parentId":"no"},"t":"\"parentId\":\"no\"","parentId" : "yes" }'
    assert splice.put(raw, "parentId", "new") == raw.replace(b'"yes"', b'"new"')


@pytest.mark.parametrize("raw", [b"", b"[1]", b'{"a":', b'{"a":[1', b'{"a":}'])
def test_what_is_no_object_is_refused(raw):
    with pytest.raises(ValueError):
        splice.put(raw, "a", 1)
