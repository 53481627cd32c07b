"""What is shown of values that may hold a secret."""

from __future__ import annotations

import pytest

from transload.specs import MASK, looks_secret, masked_env, masked_url


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/runs", "s3://bucket/runs"),
        ("postgresql://me:hunter2@host/db", f"postgresql://{MASK}@host/db"),
        ("https://token@host/x?y=a@b", f"https://{MASK}@host/x?y=a@b"),
        ("mail@host", "mail@host"),
    ],
)
def test_passwords_in_urls_are_masked(text: str, shown: str) -> None:
    """User and password of a URL are not shown; all else is."""
    assert masked_url(text) == shown


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("API_KEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True),
        ("HF_TOKEN", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("PATH", False),
        ("KEYBOARD", False),
    ],
)
def test_which_names_look_secret(name: str, secret: bool) -> None:
    """Names that people give to secrets are known; common others are not taken for them."""
    assert looks_secret(name) is secret
    assert (masked_env({name: "v"})[name] == MASK) is secret
