"""Keys as file names."""

from __future__ import annotations

import string
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.runtime import MAX_FILE_NAME
from transload.runtime.tracking.names import decode_name, encode_name, is_digest_name

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)
SAFE = frozenset((string.ascii_letters + string.digits + "-._~%=").encode())


@given(TEXTS)
def test_name_is_safe_and_short(text: str) -> None:
    """No name leaves its folder, is hidden, is too long, or holds a character that a shell would
    touch.
    """
    name = encode_name(text, ".json")
    assert set(name.encode()) <= SAFE
    assert len(name) <= MAX_FILE_NAME
    assert not name.startswith(".")
    assert name.endswith(".json")


@given(TEXTS)
def test_short_names_decode(text: str) -> None:
    """A name without a digest is read back, and the standard library agrees."""
    name = encode_name(text)
    if is_digest_name(name):
        assert decode_name(name) is None
    else:
        assert decode_name(name) == text
        assert unquote(name, errors="strict") == text
        assert name == (
            quote(text, safe="") if text[0] != "." else "%2E" + quote(text[1:], safe="")
        )


@given(st.text(alphabet=string.ascii_letters + "0123456789-._~%=ABCDEF/ é", max_size=30))
def test_decode_takes_only_what_encode_makes(name: str) -> None:
    """A name that was made by hand is taken only if it is the one name of its text."""
    text = decode_name(name)
    assert text is None or encode_name(text) == name


@given(st.sets(st.text(max_size=400, min_size=100), min_size=2, max_size=5))
def test_long_names_differ(texts: set[str]) -> None:
    """Long texts with a common beginning keep different names."""
    try:
        names = {encode_name("prefix" * 40 + text) for text in texts}
    except UnicodeEncodeError:
        return  # lone surrogates are refused before a name is made
    assert len(names) == len(texts)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("trial-1", "trial-1.json"),
        ("a/b", "a%2Fb.json"),
        ("..", "%2E..json"),
        (".x", "%2Ex.json"),
        ("ü", "%C3%BC.json"),
        ("k" * 195, "k" * 195 + ".json"),
        ("k" * 196, "k" * 120 + "=digest.json"),
        ("k" * 119 + "/" * 40, None),
    ],
)
def test_public_examples(text: str, name: str | None) -> None:
    """The names that the format's documentation shows."""
    made = encode_name(text, ".json")
    if name is None:
        assert made.startswith("k" * 119 + "=")  # an escape is not cut in two
    elif is_digest_name(name):
        import hashlib

        assert made == "k" * 120 + "=" + hashlib.sha256(text.encode()).hexdigest()[:32] + ".json"
    else:
        assert made == name
