"""Handles, macros and run options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import ConfigError
from transload.specs import (
    InvalidRunConfigException,
    MalformedAppHandleException,
    Options,
    ParsedAppHandle,
    Role,
    SpecError,
    UnknownSchedulerException,
    macros,
    make_app_handle,
    option,
    parse_app_handle,
)
from transload.specs.text import split_list, split_pairs
from transload.specs.values import Seconds

pytestmark = pytest.mark.unit

VALUES = macros.Values("/root", "app-1", "3", "RANK0")
schedulers = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,10}", fullmatch=True).map(
    lambda name: name.rstrip("\n")
)
anything = st.text(max_size=20)


@given(schedulers, anything, anything.filter(bool))
def test_handle_round_trip(scheduler: str, session: str, app_id: str) -> None:
    """Session and id come back with slashes, percent signs, newlines and odd bytes."""
    handle = make_app_handle(scheduler, session, app_id)
    assert parse_app_handle(handle) == ParsedAppHandle(scheduler, session, app_id)
    assert handle.isascii()
    assert handle.count("/") == 3
    assert not any(char.isspace() for char in handle)


def test_plain_handles_stay_plain() -> None:
    """What is safe is not encoded, the colon of a namespace above all."""
    assert (
        make_app_handle("kubernetes", "transload", "team:job-1")
        == "kubernetes://transload/team:job-1"
    )
    assert parse_app_handle("local://s/x") == ("local", "s", "x")
    assert parse_app_handle("local:///x").session_name == ""
    assert parse_app_handle("local://s/a%2Fb").app_id == "a/b"


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "x",
        "local:/s/x",
        "local://s",
        "local://s/",
        "://s/x",
        "local://s/a/b",
        "lo cal://s/x",
        "l://s/%FF",
        None,
        5,
    ],
)
def test_malformed_handles(handle: Any) -> None:
    """Anything else is refused, the form told."""
    with pytest.raises(MalformedAppHandleException, match="SCHEDULER://SESSION/APP_ID"):
        parse_app_handle(handle)


def test_handles_that_cannot_be_made() -> None:
    """A scheduler's name that is none, and an empty id, are refused."""
    for scheduler, app_id in (("lo cal", "x"), ("", "x"), ("local", ""), ("a/b", "x")):
        with pytest.raises(MalformedAppHandleException):
            make_app_handle(scheduler, "s", app_id)
    assert issubclass(MalformedAppHandleException, SpecError)


def test_macros_replace_four_tokens() -> None:
    """Macros in args, env values and nested metadata are replaced, in a copy of the role."""
    role = Role(
        "r",
        "${img_root}",
        entrypoint="${img_root}/x",
        args=[
            macros.img_root + "/bin",
            "--id=${app_id}/${replica_id}",
            "${${rank0_env}:=localhost}",
        ],
        env={"A": "${app_id}", "${app_id}": "x"},
        metadata={"k": {"n": ["${replica_id}", 5, None]}, "s": "${rank0_env}"},
    )
    done = VALUES.apply(role)
    assert done.args == ["/root/bin", "--id=app-1/3", "${RANK0:=localhost}"]
    assert done.env == {"A": "app-1", "${app_id}": "x"}
    assert done.metadata == {"k": {"n": ["3", 5, None]}, "s": "RANK0"}
    assert (done.entrypoint, done.image) == ("${img_root}/x", "${img_root}")
    assert role.args[0] == "${img_root}/bin"
    assert done.env is not role.env


@pytest.mark.parametrize(
    "text",
    [
        "$$",
        "$app_id",
        "${HOME}",
        "$${",
        "${app_id",
        "${APP_ID}",
        "$(app_id)",
        "${ app_id }",
        "${unknown}",
        "$",
        "100%",
    ],
)
def test_every_other_dollar_is_the_users(text: str) -> None:
    """What is not one of the four tokens stays as it was."""
    assert VALUES.substitute(text) == text


def test_macro_values_are_not_replaced_again() -> None:
    """A value that holds a token is put in as it is."""
    values = macros.Values("${app_id}", "${img_root}", "0", "X")
    assert (
        values.substitute("${img_root}|${app_id}|$${app_id}")
        == "${app_id}|${img_root}|$${img_root}"
    )


@given(
    st.lists(
        st.sampled_from(["$", "{", "}", "app_id", "replica_id", "x", "${app_id}", "$$", " "]),
        max_size=10,
    )
)
def test_substitution_is_replacing_tokens(parts: list[str]) -> None:
    """Substitution is exactly the replacement of the four texts."""
    text = "".join(parts)
    assert VALUES.substitute(text) == text.replace("${app_id}", "app-1").replace(
        "${replica_id}", "3"
    )


@dataclass(frozen=True, kw_only=True)
class SomeOptions(Options):
    """Options of each type."""

    queue: str = option("where", required=True)
    size: int = option("how many", 1)
    rate: float | None = option("how fast")
    debug: bool = option("whether", False)
    hosts: list[str] = option("which", ["a"])
    labels: dict[str, str] = option("what", {})
    delay: Seconds | None = option("how long")
    mode: Literal["one", "two"] = option("how", "one")


def test_run_options() -> None:
    """Parsed by type, defaults filled in. All that is known of an option is its field."""
    text = 'queue=q,size=2,debug=yes,hosts=a,b;labels={"x": "1"};delay=90s'
    cfg = SomeOptions.read_texts([text])
    read = SomeOptions.read(cfg)
    assert (read.queue, read.size, read.debug, read.hosts) == ("q", 2, True, ["a", "b"])
    assert (read.labels, read.delay, read.rate, read.mode) == ({"x": "1"}, 90.0, None, "one")
    assert SomeOptions.read({"queue": "q", "rate": 1}).rate == 1
    assert SomeOptions.read_texts([""]) == {}
    table = SomeOptions.table()
    assert (table["size"].default, table["size"].type_name, table["size"].help) == (
        1,
        "int",
        "how many",
    )
    assert table["queue"].is_required and table["mode"].type_name == "one|two"
    assert list(table)[-3:] == ["tracker_base", "pass_env", "environment"]
    assert read.cfg().keys() == table.keys() - {"tracker_base", "pass_env", "environment"}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["hosts=--a=1", "hosts=-b"], {"hosts": ["--a=1", "-b"]}),
        (["hosts=--a=1,--b=x,size=2"], {"hosts": ["--a=1", "--b=x"], "size": 2}),
        (['hosts=["--a=1,x", "b c"],size=2'], {"hosts": ["--a=1,x", "b c"], "size": 2}),
        (['hosts=["--a"]', "hosts=b,c", "hosts=[]"], {"hosts": ["--a", "b", "c"]}),
        (["labels=zone=mars"], {"labels": {"zone": "mars"}}),
        (
            ["labels=zone=a", "labels=url=http://h:1/?q=1"],
            {"labels": {"zone": "a", "url": "http://h:1/?q=1"}},
        ),
        (['labels={"zone": "a,b=1"};queue=q'], {"labels": {"zone": "a,b=1"}, "queue": "q"}),
        (["queue=a", "queue=b"], {"queue": "b"}),
    ],
)
def test_lists_and_dicts_in_every_form(texts: list[str], expected: dict[str, Any]) -> None:
    """Lists and dicts given again grow, from JSON, parts and ``key=value``.

    Of all else the last one counts.
    """
    assert SomeOptions.read_texts(texts) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hosts=[1]", "hosts[0]=1: must be a str"),
        ("hosts=['--a']", """must be a list: a,b or ["a", "b"]"""),
        ('labels={"a": 1}', "labels['a']=1: must be a str"),
        ("labels={a}", "must be of the form key=value[,key=value…], or a JSON object"),
        ("labels=zone=a,disk=b", "if it is one of labels: -c labels=disk=b"),
    ],
)
def test_wrong_lists_and_dicts(text: str, says: str) -> None:
    """What is no JSON, or holds something else than texts, is refused with the forms that are
    allowed.
    """
    with pytest.raises(InvalidRunConfigException) as caught:
        SomeOptions.read_texts([text])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        ({}, "'queue' must be given: where"),
        ({"queue": 5}, "queue=5: must be a str"),
        ({"queue": ""}, "queue='': must not be empty"),
        ({"queue": "q", "siez": 1}, "unknown run option 'siez': did you mean 'size'"),
        ({"queue": "q", "cpus": 1}, "use run --cpu N"),
        ({"queue": "q", "size": "one"}, "size='one': must be an int"),
        ({"queue": "q", "size": True}, "must be an int"),
        ({"queue": "q", "debug": 1}, "must be true or false"),
        ({"queue": "q", "hosts": {}}, "must be a list"),
        ({"queue": "q", "hosts": [1]}, "must be a str"),
        ({"queue": "q", "labels": {"a": 1}}, "must be a str"),
        ({"queue": "q", "delay": 5}, "delay=5"),
        ({"queue": "q", "mode": "tow"}, "did you mean 'two'?"),
    ],
)
def test_wrong_run_options(cfg: dict[str, Any], says: str) -> None:
    """Unknown, missing or wrongly typed run options are refused by name."""
    with pytest.raises(InvalidRunConfigException) as caught:
        SomeOptions.read(cfg)
    assert says in str(caught.value)
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize("text", ["queue", "size=x", "debug=perhaps", "nope=1", "labels=a", "=1"])
def test_wrong_option_texts(text: str) -> None:
    """A text that does not parse is refused."""
    with pytest.raises(InvalidRunConfigException):
        SomeOptions.read_texts([text])


def test_unknown_scheduler_is_suggested() -> None:
    """The nearest name is in the message."""
    assert "did you mean 'local'" in str(UnknownSchedulerException("locl", ["local", "slurm"]))


def test_splitting() -> None:
    """Pairs and lists as typed."""
    assert split_pairs("A=1,B=x,y;C='q'") == {"A": "1", "B": "x,y", "C": "q"}
    assert split_pairs('A={"x": 1, "y=2": [3]},B=[z') == {"A": '{"x": 1, "y=2": [3]}', "B": "[z"}
    assert split_list("a, b;c,,") == ["a", "b", "c"]
