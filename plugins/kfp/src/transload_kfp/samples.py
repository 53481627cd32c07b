"""What a component function does with the values of its inputs, seen by calling it with samples. Pure.

A component is compiled before its inputs are known, so the function may put their values into texts of the program and
do nothing else with them. It is called with ordinary values: some that are found again in what it returns, and then,
for each input, a few more. Each time the app must be the same but for the value's text.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from transload.components import Component, Parameter, build
from transload.errors import SpecError
from transload.specs import AppDef
from transload_kfp.marks import mark
from transload_kfp.ports import can_be_default

TYPES: Final = (str, int, float)
"""What an argument of a component function must be to be an input; a bool has no one text: KFP writes ``true``."""
_MORE: Final[dict[type, tuple[Any, ...]]] = {
    str: (" Zz 1/2.x,y=3 'é\n\" ", ""),
    int: (2, 0, -7),
    float: (1234.5, 0.0, -0.25),
}
_PATH: Final = "/Zz 1/2.x,y=3"


def app_with_marks(
    found: Component, settled: Mapping[str, Any], late: Mapping[str, type], paths: Collection[str]
) -> AppDef:
    """Return the app of a component function, with marks where the values of its inputs will stand.

    Args:
        found: the component.
        settled: the other arguments.
        late: input → ``str``, ``int`` or ``float``.
        paths: those of ``late`` that take a path, which is never empty.

    Raises:
        SpecError: for an input that is more than a text to the function, by name.
    """
    samples = {name: _sample(kind, place, name in paths) for place, (name, kind) in enumerate(late.items())}
    app = _built(found, settled, samples, tuple(late))
    app.check_runnable()
    marked = _with_texts(app, {str(value): mark(name) for name, value in samples.items()})
    parameters = {item.name: item for item in found.parameters}
    for name, kind in late.items():
        for value in _values(parameters[name], kind, name in paths):
            values = {**samples, name: value}
            got = _built(found, settled, values, (name,))
            expected = _with_texts(marked, {mark(each): str(given) for each, given in values.items()})
            where = _difference(_data(expected), _data(got))
            if where is not None:
                raise SpecError(
                    f"{found.name}: argument {name!r} cannot be an input: {where.removeprefix('.')} depends on its "
                    f"value, which is known only when the pipeline runs: {ways_out(name)}"
                )
    return marked


def ways_out(*names: str) -> str:
    """Return what can be done about arguments that cannot be inputs."""
    settled = ", ".join(f"{name!r}: …" for name in names)
    return f"settle with args={{{settled}}}, or use launcher_from_app, which builds the app when the pipeline runs"


def _sample(kind: type, place: int, path: bool) -> Any:
    """Return a value whose text is found again: no two share a part, and none is far from what programs take."""
    if kind is str:
        return f"/sample{place:03d}/x" if path else f"sample{place:03d}x"
    return 40813 + place if kind is int else float(f"0.3{1000 + place}1")


def _values(item: Parameter, kind: type, path: bool) -> Iterator[Any]:
    if path:
        yield _PATH
        return
    yield from _MORE[kind]
    if not item.required and can_be_default(item.default):
        yield float(item.default) if kind is float else item.default


def _built(found: Component, settled: Mapping[str, Any], values: Mapping[str, Any], names: tuple[str, ...]) -> AppDef:
    try:
        return build(found, {**settled, **values})
    except SpecError as exc:
        if not names:
            raise
        tried = ", ".join(f"{name}={values[name]!r}" for name in names)
        raise SpecError(f"{exc} (tried with {tried}; if that is why: {ways_out(*names)})") from exc


def _with_texts(app: AppDef, by: Mapping[str, str]) -> AppDef:
    """Return a copy of an app with parts of its programs' texts replaced."""

    def changed(text: str) -> str:
        for old, new in by.items():
            text = text.replace(old, new)
        return text

    app = copy.copy(app)
    app.roles = [copy.copy(role) for role in app.roles]
    for role in app.roles:
        role.entrypoint = changed(role.entrypoint)
        role.args = [changed(arg) for arg in role.args]
        role.env = {name: changed(value) for name, value in role.env.items()}
    return app


def _data(app: AppDef) -> Any:
    return json.loads(app.to_json())


def _difference(expected: Any, got: Any, path: str = "") -> str | None:
    """Return the path of the first difference; None: there is none."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        found = (_difference(expected[key], got[key], f"{path}.{key}") for key in expected)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        found = (
            _difference(one, other, f"{path}[{k}]") for k, (one, other) in enumerate(zip(expected, got, strict=True))
        )
    else:
        return None if type(expected) is type(got) and expected == got else path
    return next((each for each in found if each is not None), None)
