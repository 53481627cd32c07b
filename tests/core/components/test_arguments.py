"""Command lines and JSON become calls, and mistakes become one line each."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

from transload.components import (
    ComponentArgumentError,
    ComponentHelpRequested,
    ComponentInvalid,
    arguments_of,
    build,
    component_help,
    materialize,
    materialize_appdef,
    read_component,
)
from transload.specs import AppDef, Role, SpecError

pytestmark = pytest.mark.unit

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Sizes:
    """Fields of an argument."""

    width: int
    depth: int = 2


def job(  # noqa: D417 - some parameters are left undescribed on purpose
    name: str,
    j: str = "1x1",
    h: str | None = None,
    debug: bool = False,
    num_replicas: int = 1,
    *args: str,
    rate: float = 0.1,
    env: dict[str, str] | None = None,
    sizes: Sizes | None = None,
    mode: Literal["fast", "slow"] = "fast",
) -> AppDef:
    """Do a job.

    It does it well.

    Args:
        name: what it is called
        *args: what the program gets
        rate (float): how fast,
            and how far
        mode: one of two

    Returns:
        An app.
    """
    seen.update(locals())
    return AppDef(
        name, [Role("r", "i", entrypoint="e", args=list(args), num_replicas=num_replicas)]
    )


seen: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--name", "a"], {"name": "a", "args": (), "debug": False, "rate": 0.1, "j": "1x1"}),
        (["--name=a=b"], {"name": "a=b"}),
        (["--name", "a", "-j", "2x4"], {"j": "2x4"}),
        (["--name", "a", "-j2x4"], {"j": "2x4"}),
        (["--name", "a", "-j=2x4"], {"j": "2x4"}),
        (["--name", "a", "--j", "2x4"], {"j": "2x4"}),
        (["--name", "a", "-h", "gpu.small"], {"h": "gpu.small"}),
        (["--name", "a", "--num-replicas", "3"], {"num_replicas": 3}),
        (["--name", "a", "--rate", "-3.5"], {"rate": -3.5}),
        (["--name", "-x"], {"name": "-x"}),
        (["--name=--rate"], {"name": "--rate"}),
        (["--name", "a", "-j", "=2"], {"j": "=2"}),
        (["--name", "a", "x", "--name", "--rate"], {"args": ("x", "--name", "--rate")}),
        (["--name", ""], {"name": ""}),
        (["--name", "a", "--debug"], {"debug": True}),
        (["--name", "a", "--debug", "--rate", "1"], {"debug": True, "rate": 1.0}),
        (["--name", "a", "--debug", "no", "x"], {"debug": False, "args": ("x",)}),
        (["--name", "a", "--debug", "--", "no"], {"debug": True, "args": ("no",)}),
        (["--name", "a", "--name", "b"], {"name": "b"}),
        (
            ["--name", "a", "x", "--name", "b", "--", "y"],
            {"name": "a", "args": ("x", "--name", "b", "--", "y")},
        ),
        (["--name", "a", "--", "--name", "b", "--"], {"args": ("--name", "b", "--")}),
        (["--name", "a", "--", "-"], {"args": ("-",)}),
        (["--name", "a", "--env", "A=1,B=2"], {"env": {"A": "1", "B": "2"}}),
        (["--name", "a", "--sizes", "width=3"], {"sizes": Sizes(3, 2)}),
        (["--name", "a", "--mode", "slow"], {"mode": "slow"}),
    ],
)
def test_command_line(argv: list[str], expected: dict[str, Any]) -> None:
    """Options, short options, flags and the program's own arguments reach the function as
    annotated.
    """
    name = expected.get("name", "a")
    if name in ("", "-x", "--rate"):
        assert arguments_of(job, argv)["name"] == name
        return
    materialize_appdef(job, argv)
    assert {key: seen[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "job: missing: --name"),
        (["--nam", "a"], "did you mean '--name'"),
        (["--num", "2"], "did you mean '--num_replicas'"),
        (["--name"], "'--name' requires an argument"),
        (["--name", "--rate", "1"], "write --name=--rate"),
        (["--name", "--num-replicas=1"], "write --name=--num-replicas=1"),
        (["--name", "--help"], "--name: needs a value of type str"),
        (["--name", "--", "x"], "--name: needs a value of type str"),
        (["--debug", "-j", "--name", "a"], "-j: needs a value of type str"),
        (["--name", "a", "--debug", "perhaps"], "--debug='perhaps': must be true or false"),
        (["--name", "a", "--num_replicas", "two"], "--num_replicas='two': must be an int"),
        (["--name", "a", "--num_replicas="], "--num_replicas='': must be an int"),
        (["--name", "a", "--mode", "medium"], "must be one of: fast, slow"),
        (["--name", "a", "--lr", "1"], "after '--'"),
        (["--name", "a", "--lr=1"], "unknown argument --lr:"),
        (["--name", "a", "-x"], "unknown argument -x"),
        (["-name", "a"], "unknown argument -name: did you mean '--name'"),
        (["--name", "a", "--nam", "b"], "unknown argument --nam: did you mean '--name'"),
    ],
)
def test_wrong_command_lines(argv: list[str], says: str) -> None:
    """Each mistake is one line which names component and argument. The function is not called."""
    with pytest.raises(ComponentArgumentError) as caught:
        materialize_appdef(job, argv)
    assert says in str(caught.value)
    assert str(caught.value).startswith("job: ")
    assert "\n" not in str(caught.value)
    assert not seen


def test_stray_arguments() -> None:
    """A component without *args refuses what is no option."""

    def plain(x: int = 1) -> AppDef:
        return AppDef("a")

    with pytest.raises(ComponentArgumentError, match="unexpected argument '5'"):
        materialize(plain, ["5"])
    with pytest.raises(ComponentArgumentError, match="unexpected argument '5'"):
        materialize(plain, ["--", "5"])
    assert materialize(plain, ["--"]).name == "a"
    with pytest.raises(ComponentArgumentError, match="must be a str"):
        materialize(plain, ["--x", 5])  # type: ignore[list-item]


def test_defaults_of_the_configuration() -> None:
    """Configured defaults replace the function's, are read as typed, and give way to what is
    typed.
    """
    defaults = {
        "name": "configured",
        "num_replicas": "4",
        "args": "a 'b c'",
        "debug": "yes",
        "rate": 3,
    }
    materialize_appdef(job, ["--debug", "no"], defaults)
    assert (seen["name"], seen["num_replicas"], seen["args"]) == ("configured", 4, ("a", "b c"))
    assert (seen["debug"], seen["rate"]) == (False, 3)
    with pytest.raises(ComponentArgumentError, match=r"num_replicas \(default\)='x'"):
        materialize_appdef(job, [], {"name": "a", "num_replicas": "x"})
    with pytest.raises(ComponentArgumentError, match="unknown default 'nam': did you mean 'name'"):
        materialize_appdef(job, [], {"nam": "a"})


def test_config_takes_precedence() -> None:
    """Values of the fourth argument win over what was typed, and satisfy what is required."""
    materialize_appdef(
        job, ["--num_replicas", "2"], None, {"name": "c", "num_replicas": 5, "args": ["p", "q"]}
    )
    assert (seen["name"], seen["num_replicas"], seen["args"]) == ("c", 5, ("p", "q"))


def test_build_from_json() -> None:
    """JSON values reach the function as annotated, and a str may stand for any type."""
    values = {
        "name": "a",
        "num_replicas": "3",
        "args": ["x"],
        "env": {"A": "1"},
        "sizes": {"width": 7},
        "rate": 2,
    }
    app = build(job, values)
    assert app.roles[0].num_replicas == 3
    assert (seen["sizes"], seen["env"], seen["args"]) == (Sizes(7, 2), {"A": "1"}, ("x",))
    build(job, {"name": "a", "args": "x 'y z'"})
    assert seen["args"] == ("x", "y z")
    build(job, {}, defaults={"name": "d"})
    assert seen["name"] == "d"
    build("utils.echo", {"msg": "hi"})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "job: missing: name"),
        ({"name": 5}, "job: name=5: must be a str"),
        ({"name": "a", "nmae": 1}, "unknown argument 'nmae': did you mean 'name'"),
        ({"name": "a", "num_replicas": None}, "num_replicas=None: must be an int"),
        ({"name": "a", "args": 5}, "args=5: must be a list"),
        ({"name": "a", "args": [5]}, r"args[0]=5: must be a str"),
        ({"name": "a", "args": "a 'b"}, "cannot be split"),
        ({"name": "a", "sizes": {"width": "x"}}, "sizes.width='x': must be an int"),
    ],
)
def test_wrong_json(values: dict[str, Any], says: str) -> None:
    """Each mistake is one line with the path inside the value."""
    with pytest.raises(ComponentArgumentError) as caught:
        build(job, values)
    assert says in str(caught.value)
    assert not seen


def test_spec_errors_pass_and_others_are_named() -> None:
    """A wrong spec's own error passes. What else a component raises is reported with its line."""

    def bad_spec() -> AppDef:
        return AppDef("a", [Role("r", "i", num_replicas=0)])

    def bad_code() -> AppDef:
        raise KeyError("missing thing")

    def bad_return() -> AppDef:
        return "app"  # type: ignore[return-value]

    with pytest.raises(SpecError, match=r"Role\.num_replicas=0: must be 1 or more"):
        build(bad_spec)
    with pytest.raises(
        SpecError,
        match=r"component bad_code: KeyError: 'missing thing' \(.*test_arguments\.py:\d+\)",
    ):
        build(bad_code)
    with pytest.raises(SpecError, match="returned str, must be an AppDef"):
        build(bad_return)


def test_help() -> None:
    """--help comes from signature and docstring, in long form only, as -h may be an argument."""
    with pytest.raises(ComponentHelpRequested) as caught:
        materialize_appdef(job, ["--name", "a", "--help"])
    text = str(caught.value)
    assert caught.value.component == "job"
    assert text == component_help(read_component(job))
    assert text.startswith(
        "Usage: transload run job --name str [--NAME VALUE ...] [-- args ...]\n\nDo a job.\n\nIt "
        "does"
    )
    for line in (
        "--name str",
        "what it is called (required)",
        "-j str",
        "(default: 1x1)",
        "--mode fast|slow",
    ):
        assert line in text
    assert "how fast, and how far (default: 0.1)" in text
    assert "(default: false)" in text
    assert "An app." not in text
    materialize_appdef(job, ["--name", "a", "--", "--help"])
    assert seen["args"] == ("--help",)


def test_read_component() -> None:
    """The description, kinds, types, defaults and helps of a signature."""
    component = read_component(job, "my.job")
    by_name = {item.name: item for item in component.parameters}
    assert component.name == "my.job"
    assert component.description == "Do a job.\n\nIt does it well."
    assert (by_name["args"].kind, by_name["rate"].kind, by_name["name"].kind) == (
        "varargs",
        "keyword",
        "positional",
    )
    assert component.helps["rate"] == "how fast, and how far"
    assert (by_name["name"].required, by_name["j"].required, by_name["args"].required) == (
        True,
        False,
        False,
    )
    assert by_name["env"].annotation == dict[str, str] | None
    assert component.varargs is by_name["args"]
    assert component.parameter("nope") is None


def test_docstring_styles() -> None:
    """Fields of reST and NumPy's sections are read as well as Google's, and examples stay.

    Without a docstring there is no help.
    """

    def rest(a: int, b: str = "") -> AppDef:
        """Run.

        :param a: the first,
            going on
        :param str b: the second
        :return: an app
        """
        return AppDef("a")

    def google(a: int, b: str = "") -> AppDef:
        """Run.

        Args:
            a: the first,
                going on
            b: the second

        Example:
            run --a 3
        """
        return AppDef("a")

    def numpy(a: int, b: str = "") -> AppDef:
        """Run.

        Parameters
        ----------
        a : int
            the first,
            going on
        b
            the second
        """
        return AppDef("a")

    def bare(a: int) -> AppDef:
        return AppDef("a")

    for fn in (rest, google, numpy):
        assert read_component(fn).helps == {"a": "the first, going on", "b": "the second"}
    assert read_component(rest).description == "Run."
    assert read_component(numpy).description == "Run."
    assert read_component(google).description == "Run.\n\nExample:\n    run --a 3"
    assert read_component(bare).helps == {}
    assert read_component(bare).description == ""
    assert "--a int" in component_help(read_component(bare)).replace("-a int", "--a int")


def test_what_is_no_component() -> None:
    """Missing annotations, **kwargs, async, unknown names and types are refused, naming the
    parameter.
    """

    def untyped(a, b: int = 1) -> AppDef:  # type: ignore[no-untyped-def]
        return AppDef("a")

    def kwargs(**rest: str) -> AppDef:
        return AppDef("a")

    async def later() -> AppDef:
        return AppDef("a")

    def unknown(a: Decimal) -> AppDef:
        return AppDef("a")

    def unsupported(a: set[int]) -> AppDef:
        return AppDef("a")

    for fn, says in (
        (untyped, "parameter 'a': must have a type annotation"),
        (kwargs, r"parameter '\*\*rest': \*\*kwargs is not supported"),
        (later, "must be a plain function, not async"),
        (unknown, "parameter 'a': annotation 'Decimal' cannot be resolved: NameError"),
        (unsupported, r"parameter 'a': type 'set' is not supported"),
        (5, "must be a function"),
    ):
        with pytest.raises(ComponentInvalid, match=says):
            read_component(fn)  # type: ignore[arg-type]


def test_wrapped_functions() -> None:
    """A decorated function, a partial and a callable object are read by what is behind them."""

    def deco(fn: Any) -> Any:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return inner

    class Maker:
        def __call__(self, size: int) -> AppDef:
            """Make."""
            return AppDef(f"made-{size}")

    assert materialize(deco(job), ["--name", "x"]).name == "x"
    partial = functools.partial(job, rate=0.7)
    assert build(partial, {"name": "y"}).name == "y"
    assert seen["rate"] == 0.7
    assert build(Maker(), {"size": "3"}).name == "made-3"


def test_positional_only() -> None:
    """Positional-only parameters are given by name like all others."""

    def strict(a: int, /, b: int = 2) -> AppDef:
        return AppDef(f"{a}-{b}")

    assert materialize(strict, ["--a", "1"]).name == "1-2"


def test_arguments_are_kept_with_the_app() -> None:
    """Arguments are kept by name as decoded, defaults too, as JSON, and masked where secret.

    The digest does not contain them.
    """

    def train(
        lr: float,
        token: str = "",
        max_tokens: int = 3,
        env: dict[str, str] | None = None,
        *rest: str,
    ) -> AppDef:
        """Train."""
        return AppDef("train", [Role("main", "", entrypoint="true")])

    app = materialize(
        train, ["--lr", "0.5", "--token", "hunter2", "--env", "API_KEY=hunter2,A=b", "x"]
    )
    assert app.arguments == {
        "lr": 0.5,
        "token": "******",
        "max_tokens": 3,
        "env": {"API_KEY": "******", "A": "b"},
        "rest": ["x"],
    }
    assert build(train, {"lr": "0.5", "env": {"A": "b"}}).arguments["lr"] == 0.5
    assert AppDef.from_json(app.to_json()) == app
    assert app.digest() == train(0.5).digest()
    assert build(job, {"name": "n", "sizes": {"width": 3}}).arguments["sizes"] == {
        "width": 3,
        "depth": 2,
    }
