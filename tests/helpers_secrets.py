"""Secrets of every shape that people paste: generated, so that none of them is anybody's."""

from __future__ import annotations

import string

from hypothesis import strategies as st

WORD = string.ascii_letters + string.digits
HEX, URL, UPPER = "0123456789abcdef", WORD + "-_", string.ascii_uppercase + string.digits

# A form, and what each {} of it is made of: (alphabet, length)
FORMS: dict[str, tuple[tuple[str, int], ...]] = {
    "sk-ant-api03-{}": ((URL, 60),), "sk-proj-{}": ((URL, 60),), "sk-{}": ((WORD, 48),),
    "sk-or-v1-{}": ((HEX, 64),), "ghp_{}": ((WORD, 36),), "gho_{}": ((WORD, 36),), "ghu_{}": ((WORD, 36),),
    "ghs_{}": ((WORD, 36),), "ghr_{}": ((WORD, 36),), "github_pat_{}_{}": ((WORD, 22), (WORD, 59)),
    "glpat-{}": ((URL, 20),), "glrt-{}": ((URL, 20),), "glagent-{}": ((URL, 50),), "gldt-{}": ((URL, 20),),
    "xoxb-{}-{}": ((string.digits, 12), (WORD, 24)), "xoxp-{}": ((WORD, 40),), "xapp-1-{}": ((UPPER, 30),),
    "https://hooks.slack.com/services/{}/{}": ((UPPER, 9), (WORD, 24)),
    "AKIA{}": ((UPPER, 16),), "ASIA{}": ((UPPER, 16),), "AWS_SECRET_ACCESS_KEY={}": ((WORD + "+/", 40),),
    "AIza{}": ((URL, 35),), "ya29.{}": ((URL, 60),), "GOCSPX-{}": ((URL, 28),), "1//0{}": ((URL, 60),),
    "eyJ{}.eyJ{}.{}": ((URL, 30), (URL, 60), (URL, 43)),
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----": ((WORD + "+/", 64),),
    "-----BEGIN OPENSSH PRIVATE KEY-----\\n{}": ((WORD + "+/", 64),),
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----": ((WORD + "+/", 64),),
    "https://someone:{}@host.example/path": ((WORD, 16),), "postgres://app:{}@db:5432/x": ((WORD, 16),),
    "Authorization: Bearer {}": ((WORD, 32),), "authorization: Basic {}": ((WORD, 32),),
    "x-api-key: {}": ((WORD, 32),), "?access_token={}&x=1": ((WORD, 32),), "password={}": ((WORD, 20),),
    "npm_{}": ((WORD, 36),), "pypi-AgEIcHlwaS5vcmc{}": ((URL, 60),), "rubygems_{}": ((HEX, 48),),
    "dckr_pat_{}": ((URL, 27),), "cio{}": ((WORD, 32),), "hf_{}": ((WORD, 34),), "r8_{}": ((WORD, 37),),
    "gsk_{}": ((WORD, 52),), "xai-{}": ((WORD, 80),), "pplx-{}": ((WORD, 48),), "sk_live_{}": ((WORD, 24),),
    "rk_test_{}": ((WORD, 24),), "whsec_{}": ((WORD, 32),), "SG.{}.{}": ((URL, 22), (URL, 43)),
    "hvs.{}": ((URL, 90),), "dapi{}": ((HEX, 32),), "ATATT3xFfGF0{}": ((URL, 60),), "NRAK-{}": ((UPPER, 27),),
    "glsa_{}_{}": ((WORD, 32), (HEX, 8)), "sntrys_{}": ((WORD, 60),), "dp.pt.{}": ((WORD, 43),),
    "sbp_{}": ((HEX, 40),), "pscale_tkn_{}": ((URL, 43),), "figd_{}": ((URL, 40),),
    "lin_api_{}": ((WORD, 40),), "ntn_{}": ((WORD, 46),), "sq0atp-{}": ((URL, 22),), "SK{}": ((HEX, 32),),
    "key-{}": ((HEX, 32),),
    "shpat_{}": ((HEX, 32),), "dop_v1_{}": ((HEX, 64),), "AGE-SECRET-KEY-1{}": ((UPPER, 58),),
    "123456789:AA{}": ((URL, 33),), "tvly-{}": ((WORD, 32),),
}  # fmt: skip


@st.composite
def secrets(draw: st.DrawFn) -> tuple[str, str]:
    """A text that holds a secret, and the part of it that must be seen nowhere."""
    form = draw(st.sampled_from(sorted(FORMS)))
    parts = [draw(st.text(alphabet, min_size=size, max_size=size)) for alphabet, size in FORMS[form]]
    hidden = max(parts, key=len)
    return form.format(*parts), hidden


def one_of_each() -> list[tuple[str, str]]:
    """One secret of every shape, with what must be seen nowhere."""
    found = []
    for n, (form, made_of) in enumerate(FORMS.items()):
        parts = [_spread(alphabet, size, n) for alphabet, size in made_of]
        found.append((form.format(*parts), max(parts, key=len)))
    return found


def _spread(alphabet: str, size: int, n: int) -> str:
    return "".join(alphabet[(7 * at + 11 * n + at * at) % len(alphabet)] for at in range(size))
