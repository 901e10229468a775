"""No generated secret survives redaction, whatever stands around it; harmless text does."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from perdure.context.text.secrets import is_secret_name, redact

WORD = string.ascii_letters + string.digits


def of(alphabet: str, low: int, high: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=low, max_size=high)


SHAPED = st.one_of(
    st.builds("sk-ant-api03-{}".format, of(WORD + "-_", 20, 90)),
    st.builds("sk-proj-{}".format, of(WORD + "-_", 20, 90)),
    st.builds("sk-{}".format, of(WORD, 32, 48)),
    st.builds("{}{}".format, st.sampled_from(["ghp_", "gho_", "ghs_", "ghu_", "ghr_"]), of(WORD, 36, 36)),
    st.builds("github_pat_{}".format, of(WORD + "_", 40, 80)),
    st.builds("glpat-{}".format, of(WORD + "-_", 20, 20)),
    st.builds("xox{}-{}".format, st.sampled_from("abprs"), of(WORD + "-", 20, 60)),
    st.builds("AKIA{}".format, of(string.ascii_uppercase + string.digits, 16, 16)),
    st.builds("AIza{}".format, of(WORD + "-_", 35, 35)),
    st.builds("{}_live_{}".format, st.sampled_from(["sk", "rk", "pk"]), of(WORD, 24, 40)),
    st.builds("hf_{}".format, of(WORD, 34, 34)),
    st.builds("npm_{}".format, of(WORD, 36, 36)),
    st.builds(
        "eyJ{}.eyJ{}.{}".format, of(WORD + "-_", 20, 60), of(WORD + "-_", 20, 60), of(WORD + "-_", 20, 43)
    ),
    st.builds("SG.{}.{}".format, of(WORD + "-_", 22, 22), of(WORD + "-_", 43, 43)),
    st.builds("{}:AA{}".format, of(string.digits, 9, 10), of(WORD + "-_", 33, 33)),
)
OPAQUE = of(WORD, 16, 64).filter(lambda s: any(c.isdigit() for c in s) and any(c.isalpha() for c in s))
AROUND = st.text(max_size=30)


@given(AROUND, SHAPED, AROUND)
@example("x", "sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaa", "x")
def test_a_secret_of_a_known_shape_never_survives(before: str, secret: str, after: str) -> None:
    assert secret not in redact(before + secret + after)


FORMS = [
    r"",
    r"Authorization: Bearer {}",
    r"authorization: basic {}",
    r"-H 'X-Api-Key: {}'",
    r"api_key={}",
    r'API_KEY="{}"',
    r'"apiKey": "{}"',
    r"\"token\":\"{}\"",
    r'"password": "{}',
    r"password = '{}'",
    r"?access_token={}&x=1",
    r"client_secret: {}",
    r"AWS_SECRET_ACCESS_KEY={}",
    r"Cookie: sid={}",
    r"https://user:{}@host/path",
    r"postgres://{}@db",
    r"redis://:{}@cache:6379/0",
]


@given(AROUND, st.sampled_from(FORMS), OPAQUE)
def test_an_opaque_secret_goes_by_what_it_is_called(before: str, form: str, secret: str) -> None:
    assume(secret not in before)
    assert secret not in redact(f"{before}\n{form.format(secret)}")


@given(AROUND, st.sampled_from(["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "]), OPAQUE, st.booleans(), AROUND)
def test_a_private_key_goes_whole_even_cut_short(a: str, kind: str, body: str, closed: bool, b: str) -> None:
    assume(body not in a and body not in b)
    end = f"\n-----END {kind}PRIVATE KEY-----\n{b}" if closed else ""
    assert body not in redact(f"{a}-----BEGIN {kind}PRIVATE KEY-----\n{body}\n{body}{end}")


HARMLESS = [
    "",
    "input_tokens: 4096, cache_read_tokens=120000",
    "the token economics of bearer bonds",
    "max_token: 4096",
    "see https://host/path?page=2",
    "commit 44c68803e1",
    "550e8400-e29b-41d4-a716-446655440000",
    "password: null",
    "task-force-of-the-year",
    "秘密是保密的",
    "user@host",
    "basic training starts",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@given(st.text())
def test_redaction_is_total_and_settles(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


HOSTILE = (
    "a:",
    "://",
    "-----BEGIN PRIVATE KEY-----",
    "eyJ",
    "password=",
    "a+",
    "x://y:",
    '"\\',
    "0",
    "sk-",
    "SG.",
)


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_text_is_redacted_in_linear_time(part: str) -> None:
    redact(part * (200_000 // len(part)))


SECRET_NAMES = [
    "ANTHROPIC_API_KEY",
    "authToken",
    "x-api-key",
    "DB_PASSWORD",
    "client_secret",
    "AWS_SECRET_ACCESS_KEY",
    "Cookie",
    "GH_TOKEN",
    "Authorization",
    "SSH_AUTH_SOCK",
    "private_key",
    "SENTRY_DSN",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "PWD",
        "tokens",
        "max_tokens",
        "key",
        "session_key",
        "author",
        "monkey",
        "HOME",
    ],
)
def test_names_of_other_things_are_not(name: str) -> None:
    assert not is_secret_name(name)
