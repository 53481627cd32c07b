"""What is shown of values that may hold a secret."""

from __future__ import annotations

import pytest

from transload.specs import (
    MASK,
    AppDef,
    Role,
    looks_secret,
    masked_args,
    masked_env,
    masked_url,
    masked_values,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/runs", "s3://bucket/runs"),
        ("postgresql://me:hunter2@host/db", f"postgresql://{MASK}@host/db"),
        ("https://token@host/x?y=a@b", f"https://{MASK}@host/x?y=a@b"),
        ("mail@host", "mail@host"),
        ("ssh://me@login.example", "ssh://me@login.example"),
        ("ssh://me:hunter2@login.example", f"ssh://{MASK}@login.example"),
        ("redis://:p@ss@host:1/0", f"redis://{MASK}@host:1/0"),
        ("http://h/x?user=me&token=abc#y", f"http://h/x?user=me&token={MASK}#y"),
        (
            "https://b.s3/x?X-Amz-Signature=abc&part=1",
            f"https://b.s3/x?X-Amz-Signature={MASK}&part=1",
        ),
        ("a s3://k:s@b/x and s3://k:s@c/y", f"a s3://{MASK}@b/x and s3://{MASK}@c/y"),
    ],
)
def test_passwords_in_urls_are_masked(text: str, shown: str) -> None:
    """User and password of a URL are not shown, and all else is, such as a login."""
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
        ("api-key", True),
        ("db.password", True),
        ("wandb_key", True),
        ("account_key", True),
        ("access_token", True),
        ("result_key", False),
        ("result-key", False),
        ("sort_key", False),
        ("primary_key", False),
        ("ssh_public_key", False),
        ("max_tokens", False),
        ("max_new_tokens", False),
        ("pad_token_id", False),
        ("tokens_per_second", False),
        ("DB_PASS", True),
        ("pass", True),
        ("JWT", True),
        ("jwt_signing", True),
        ("AUTHORIZATION", True),
        ("http.proxy-authorization", True),
        ("PROXY_CREDS", True),
        ("compass", False),
        ("two_pass", False),
        ("authorized_users", False),
    ],
)
def test_which_names_look_secret(name: str, secret: bool) -> None:
    """Names that people give to secrets are known, and common others are not taken for them."""
    assert looks_secret(name) is secret
    assert (masked_env({name: "v"})[name] == MASK) is secret


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--password", "hunter2", "x"], ["--password", MASK, "x"]),
        (["--api-key=hunter2", "--lr=1"], [f"--api-key={MASK}", "--lr=1"]),
        (["db.password=hunter2", "db.user=me"], [f"db.password={MASK}", "db.user=me"]),
        (["--use-token", "--lr", "1"], ["--use-token", "--lr", "1"]),
        (["--token", "", "--secret="], ["--token", MASK, "--secret="]),
        (["postgresql://me:hunter2@h/db"], [f"postgresql://{MASK}@h/db"]),
        (["--url=postgresql://me:hunter2@h/db"], [f"--url=postgresql://{MASK}@h/db"]),
        (["-c", "train --password hunter2 --lr 1"], ["-c", f"train --password {MASK} --lr 1"]),
        (["-c", "cd x; API_TOKEN='a b' train"], ["-c", f"cd x; API_TOKEN={MASK} train"]),
        (
            ["-c", "curl -H 'Authorization: Bearer abcdefgh1' x"],
            ["-c", f"curl -H 'Authorization: Bearer {MASK}' x"],
        ),
        (
            ["--json", '{"password": "hunter2", "lr": 1}'],
            ["--json", f'{{"password": {MASK}, "lr": 1}}'],
        ),
    ],
)
def test_secrets_among_arguments_are_masked(args: list[str], shown: list[str]) -> None:
    """Values of options, settings, variables and members whose names look secret, wherever they
    stand.
    """
    assert masked_args(args) == shown
    assert masked_args(shown) == shown


@pytest.mark.parametrize(
    "args",
    [
        ["--result-key", "final", "--max-tokens", "512", "--tokenizer=bert", "key=lambda"],
        ["-c", "print(sorted(x, key=len)); token = 3; auth=f(1)"],
        ["-c", 'export TOKEN="$HF_TOKEN"; train --password $PASSWORD'],
        ["-c", """printf '{"key": "final", "results": {}}'"""],
        ["https://host/a@b", "git@host:x", "--sort-key=name"],
    ],
)
def test_harmless_arguments_are_shown(args: list[str]) -> None:
    """Ordinary options, programs' texts and references to variables stay as they are."""
    wanted = [word for word in args if word != "key=lambda"]
    assert masked_args(wanted) == wanted


def test_an_app_is_masked_everywhere() -> None:
    """Variables, arguments and nested metadata are masked, in a copy of the job."""
    role = Role(
        "r",
        "",
        entrypoint="train",
        args=["--password", "hunter2"],
        env={"DATABASE_URL": "postgresql://me:hunter2@h/db"},
        metadata={"docker": {"password": "hunter2", "list": [{"token": "hunter2"}]}, "pin": 7},
    )
    app = AppDef(
        "a",
        [role],
        metadata={"password": "hunter2", "team": "red"},
        arguments={"api_key": "hunter2", "n": 1},
    )
    shown = app.masked()
    assert "hunter2" not in shown.to_json()
    assert (shown.metadata["team"], shown.arguments["n"], shown.roles[0].metadata["pin"]) == (
        "red",
        1,
        7,
    )
    assert "hunter2" in app.to_json() and app.roles[0].args == ["--password", "hunter2"]
    assert masked_values({"a": {"b": None, "password": ""}}) == {"a": {"b": None, "password": ""}}


@pytest.mark.parametrize(
    "word",
    [
        "Authorization: token s3cr3t-value",
        "authorization: s3cr3t-value",
        "Authorization: Bearer s3cr3t-value",
        "Proxy-Authorization: Basic s3cr3t-value=",
        '{"Authorization": "s3cr3t-value"}',
    ],
)
def test_headers_that_authorise_are_masked(word: str) -> None:
    """A request's header among the words of a command, or in a script, is not shown."""
    assert "s3cr3t" not in " ".join(masked_args(["-H", word]))
    assert "s3cr3t" not in " ".join(masked_args(["-c", f"curl -H '{word}' host"]))
    assert "host" in masked_args(["-c", f"curl -H '{word}' host"])[1]
