"""Plugins and hooks are found, isolated and refused. Every hook is documented and exercised."""

from __future__ import annotations

import inspect
import logging
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from transload.errors import ConfigError, PluginError, SpecError
from transload.plugins import (
    AppEvent,
    Plugins,
    get_plugins,
    hookimpl,
    hookspecs,
    load_attribute,
    manager,
)
from transload.plugins.builtins import BUILTINS
from transload.plugins.entry_points import has_plugins
from transload.specs import AppDef, AppState, AppStatus, CfgVal, Resource, named_resources

pytestmark = pytest.mark.unit

KINDS = (
    "schedulers",
    "trackers",
    "components",
    "named_resources",
    "adapters",
    "suggesters",
    "cli_commands",
)


def hooks() -> dict[str, Callable[..., Any]]:
    """Return every hook by name."""
    return {
        name: fn
        for name, fn in vars(hookspecs).items()
        if name.startswith("transload_") and callable(fn)
    }


def module(name: str, **contents: Any) -> ModuleType:
    """Return a module made of these attributes."""
    made = ModuleType(name)
    vars(made).update(contents)
    return made


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a distribution with plugins, by ``installed("dist", {"name": "module"}, …)``."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(dist: str, entry_points: dict[str, str], **sources: str) -> None:
        info = tmp_path / f"{dist.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.2\n")
        lines = "\n".join(f"{name} = {value}" for name, value in entry_points.items())
        (info / "entry_points.txt").write_text(f"[transload]\n{lines}\n")
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(
                "from transload.plugins import hookimpl\n" + textwrap.dedent(source)
            )
            monkeypatch.delitem(sys.modules, name, raising=False)
        has_plugins.cache_clear()

    return install


GOOD = """
    @hookimpl
    def transload_schedulers(register):
        register("mine", "tl_no_such_module:make")
        register("own", lambda session_name: session_name)
"""


def test_what_the_core_brings() -> None:
    """The core is listed like a plugin. Each of its names can be loaded, without pluggy."""
    found = Plugins(entry_points=[])
    (core,) = found.infos()
    assert (core.name, core.status, core.error) == ("transload", "loaded", "")
    assert core.provides == {kind: sorted(names) for kind, names in BUILTINS.items()}
    for kind, names in BUILTINS.items():
        for name in names:
            assert callable(found.get(kind, name))
    code = "import sys, transload.plugins as p; p.Plugins([]).infos(); sys.exit('pluggy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_installed_plugin(installed: Any) -> None:
    """A plugin is found by its entry point, with distribution and version, and its names."""
    installed("tl-dist-a", {"tl-a": "tl_plugin_a"}, tl_plugin_a=GOOD)
    found = Plugins(disabled=set())
    info = next(info for info in found.infos() if info.name == "tl-a")
    assert (info.dist, info.version, info.status) == ("tl-dist-a", "1.2", "loaded")
    assert info.provides == {"schedulers": ["mine", "own"]}
    assert found.get("schedulers", "own")("s") == "s"
    assert "own" in found.names("schedulers")


def test_two_distributions_may_name_their_plugins_alike(installed: Any) -> None:
    """Both are loaded, and the list says which is whose."""
    installed("tl-dist-a", {"tl-a": "tl_plugin_a"}, tl_plugin_a=GOOD)
    other = GOOD.replace('"mine"', '"other"').replace('"own"', '"too"')
    installed("tl-dist-b", {"tl-a": "tl_plugin_b"}, tl_plugin_b=other)
    found = Plugins(disabled=set())
    infos = {info.name: info for info in found.infos() if info.dist.startswith("tl-dist")}
    assert {name: info.dist for name, info in infos.items()} == {
        "tl-a": "tl-dist-a",
        "tl-a (tl-dist-b)": "tl-dist-b",
    }
    assert {info.status for info in infos.values()} == {"loaded"}
    assert {"mine", "own", "other", "too"} <= set(found.names("schedulers"))
    off = [info.status for info in Plugins(disabled={"tl-a"}).infos() if "tl-a" in info.name]
    assert off == ["disabled", "disabled"]


def test_a_distribution_that_lies_twice_on_the_path_is_one(
    installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that Python imports counts, however its name is spelled."""
    installed("tl-dist-a", {"tl-a": "tl_plugin_a"}, tl_plugin_a=GOOD)
    again = tmp_path / "again" / "tl_dist_a-1.1.dist-info"
    again.mkdir(parents=True)
    (again / "METADATA").write_text("Metadata-Version: 2.1\nName: TL_Dist.a\nVersion: 1.1\n")
    (again / "entry_points.txt").write_text("[transload]\ntl-a = tl_plugin_a\n")
    monkeypatch.syspath_prepend(str(again.parent))
    monkeypatch.syspath_prepend(str(tmp_path))
    has_plugins.cache_clear()
    infos = [info for info in Plugins(disabled=set()).infos() if "tl-a" in info.name]
    assert [(info.version, info.status) for info in infos] == [("1.2", "loaded")]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('broken at import')", "RuntimeError: broken at import"),
        ("import no_such_thing", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit(4)", "SystemExit: 4"),
        ("@hookimpl\ndef transload_schedulrs(register): ...", "transload_schedulrs"),
        ("@hookimpl\ndef transload_schedulers(registr): ...", "registr"),
        (
            "@hookimpl\ndef transload_schedulers(register): raise ValueError('at use')",
            "ValueError: at use",
        ),
        (
            "@hookimpl\ndef transload_schedulers(register): register('local', 'a:b')",
            "'local' is registered already by",
        ),
        (
            "@hookimpl\ndef transload_schedulers(register): register('x', 5)",
            "must be callable or 'package.module:attribute'",
        ),
        (
            "@hookimpl\ndef transload_schedulers(register): register('a b', 'a:b')",
            "a name must be a str without spaces",
        ),
    ],
)
def test_broken_plugin_is_set_aside(installed: Any, source: str, says: str) -> None:
    """A broken plugin is shown with its traceback, and all others work."""
    installed(
        "tl-dist-b",
        {"tl-bad": "tl_plugin_b", "tl-good": "tl_plugin_c"},
        tl_plugin_b=source,
        tl_plugin_c=GOOD,
    )
    found = Plugins(disabled=set())
    infos = {info.name: info for info in found.infos()}
    assert infos["tl-bad"].status == "broken"
    assert says in infos["tl-bad"].error
    assert infos["tl-bad"].dist == "tl-dist-b"
    assert infos["tl-good"].status == "loaded"
    assert {"own", "local"} <= set(found.names("schedulers"))
    assert "tl-bad" in found.hint("schedulers", "nothing-like-it")


def test_broken_thing_raises_only_where_asked_for(installed: Any) -> None:
    """A name whose module is missing raises when asked for, naming the plugin. Others work."""
    installed("tl-dist-d", {"tl-d": "tl_plugin_d"}, tl_plugin_d=GOOD)
    found = Plugins(disabled=set())
    with pytest.raises(
        PluginError, match="scheduler 'mine' of plugin 'tl-d' cannot be loaded: ModuleNotFoundError"
    ) as caught:
        found.get("schedulers", "mine")
    assert (caught.value.plugin, caught.value.dist) == ("tl-d", "tl-dist-d")
    assert found.get("schedulers", "own")
    with pytest.raises(KeyError):
        found.get("schedulers", "nothing")


@pytest.mark.parametrize(
    ("value", "status"),
    [("tl-e", "disabled"), ("x, tl-e ,y", "disabled"), ("*", "disabled"), ("x", "loaded")],
)
def test_disabled_by_name(
    installed: Any, monkeypatch: pytest.MonkeyPatch, value: str, status: str
) -> None:
    """A plugin that the variable names, or ``*``, is not imported. The built-ins stay."""
    installed("tl-dist-e", {"tl-e": "tl_plugin_e"}, tl_plugin_e=GOOD)
    monkeypatch.setenv("TRANSLOAD_DISABLE_PLUGINS", value)
    found = Plugins()
    assert next(info.status for info in found.infos() if info.name == "tl-e") == status
    assert ("tl_plugin_e" in sys.modules) is (status == "loaded")
    assert "local" in found.names("schedulers")
    sys.modules.pop("tl_plugin_e", None)


def test_attribute_of_a_module_as_plugin(installed: Any) -> None:
    """An entry point may name an object, and two plugins of one name are both kept."""
    source = """
        class Box:
            @hookimpl
            def transload_trackers(self, register):
                register("boxed", lambda config: config)
        box = Box()
    """
    installed(
        "tl-dist-f", {"tl-f": "tl_plugin_f:box", "transload": "tl_plugin_f"}, tl_plugin_f=source
    )
    infos = {info.name: info for info in Plugins(disabled=set()).infos()}
    assert infos["tl-f"].provides == {"trackers": ["boxed"]}
    assert infos["transload"].dist == ""
    assert infos["transload (tl-dist-f)"].status == "loaded"


def test_misspelt_hook_names_the_plugin() -> None:
    """Registering an object with an unknown hook, or a wrong argument, is an error which names
    plugin and hook.
    """

    class Misspelt:
        @hookimpl
        def transload_shedulers(self, register: Any) -> None: ...

    class Wrong:
        @hookimpl
        def transload_schedulers(self, registrar: Any) -> None: ...

    found = Plugins(entry_points=[])
    for plugin, says in ((Misspelt(), "transload_shedulers"), (Wrong(), "registrar")):
        with pytest.raises(PluginError, match=says) as caught:
            found.register(plugin, "tl-g", "tl-dist-g")
        assert "tl-g" in str(caught.value)
        assert caught.value.dist == "tl-dist-g"
        assert "tl-g" not in {info.name for info in found.infos()}
    found.register(module("ok"), "tl-g")
    with pytest.raises(PluginError, match="'tl-g' is registered already"):
        found.register(module("ok"), "tl-g")
    found.unregister("tl-g")
    found.unregister("tl-g")
    found.register(module("ok"), "tl-g")
    same = module("same")
    found.register(same, "tl-h")
    with pytest.raises(PluginError, match="plugin 'tl-i'"):
        found.register(same, "tl-i")
    assert "tl-i" not in {info.name for info in found.infos()}


@pytest.mark.parametrize("kind", KINDS)
def test_name_clashes_are_refused(kind: str) -> None:
    """A second registration of a name is refused, and never hides the first."""

    def brings(thing: Any) -> Any:
        def hook(register: Any) -> None:
            register("tl.twice", thing)

        return module("brings", **{f"transload_{kind}": hookimpl(hook)})

    found = Plugins(entry_points=[])
    first = lambda: None  # noqa: E731
    found.register(brings(first), "first")
    found.register(brings(lambda: 1), "second")
    assert found.get(kind, "tl.twice") is first
    second = next(info for info in found.infos() if info.name == "second")
    assert second.status == "broken"
    assert "'tl.twice' is registered already by 'first'" in second.error


def test_builtin_names_cannot_be_taken() -> None:
    """No plugin hides a built-in scheduler, component, tracker or resource."""
    taken = {"components": "utils.echo", "schedulers": "local", "named_resources": "cpu.small"}
    for kind, name in taken.items():

        def hook(register: Any, name: str = name) -> None:
            register(name, lambda: None)

        found = Plugins(entry_points=[])
        # pluggy would call the one that wants to be last before all others in its list
        found.register(
            module("thief", **{f"transload_{kind}": hookimpl(hook, trylast=True)}), "thief"
        )
        thief = next(info for info in found.infos() if info.name == "thief")
        assert f"{name!r} is registered already" in thief.error


# every hook


class Everything:
    """Implements every hook, and notes which was called."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.events: list[AppEvent] = []

    def _note(self, register: Any, name: str) -> None:
        self.called.add(inspect.currentframe().f_back.f_code.co_name)  # type: ignore[union-attr]
        register(name, lambda: Resource(7, 0, 7))

    @hookimpl
    def transload_schedulers(self, register: Any) -> None:
        """Take note of schedulers."""
        self._note(register, "tl.any")

    @hookimpl
    def transload_trackers(self, register: Any) -> None:
        """Take note of trackers."""
        self._note(register, "tl.any")

    @hookimpl
    def transload_components(self, register: Any) -> None:
        """Take note of components."""
        self._note(register, "tl.any")

    @hookimpl
    def transload_named_resources(self, register: Any) -> None:
        """Take note of named resources."""
        self._note(register, "tl.any")

    @hookimpl
    def transload_adapters(self, register: Any) -> None:
        """Take note of adapters."""
        self._note(register, "tl.any")

    @hookimpl
    def transload_suggesters(self, register: Any) -> None:
        """Take note of suggesters."""
        self._note(register, "tl.any")

    @hookimpl
    def transload_cli_commands(self, register: Any) -> None:
        """Take note of commands."""
        self._note(register, "tl.any")

    @hookimpl
    def transload_before_submit(
        self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]
    ) -> AppDef | None:
        """Take note of the time before a submit."""
        self.called.add("transload_before_submit")
        return AppDef(f"{app.name}-{scheduler}-{cfg['x']}")

    @hookimpl
    def transload_app_link(self, handle: str) -> str | None:
        """Take note of a job's link."""
        self.called.add("transload_app_link")
        return f"https://apps.example/{handle}"

    @hookimpl
    def transload_app_event(self, event: AppEvent) -> None:
        """Take note of a job's event."""
        self.called.add("transload_app_event")
        self.events.append(event)


def test_every_hook_is_exercised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hook is called as its contract says. A new one fails here until it is tested."""
    everything = Everything()
    found = Plugins(entry_points=[])
    found.register(everything, "everything")
    monkeypatch.setattr(manager, "_plugins", found)
    for kind in KINDS:
        assert "tl.any" in found.names(kind)
        assert found.get(kind, "tl.any")() == Resource(7, 0, 7)
    assert named_resources["tl.any"] == Resource(7, 0, 7)
    assert found.before_submit(AppDef("a"), "local", {"x": 1}).name == "a-local-1"
    assert found.app_link("local://s/x") == "https://apps.example/local://s/x"
    event = AppEvent("local://s/x", AppState.FAILED, 2, AppStatus(AppState.FAILED), 1.0)
    found.emit(event)
    assert everything.events == [event]
    assert event.id == "local://s/x#FAILED#2"
    assert everything.called == set(hooks())
    assert get_plugins() is found


@pytest.mark.parametrize("name", sorted(hooks()))
def test_every_hook_is_documented(name: str) -> None:
    """A hook's docstring says when and by whom it is called, its parameters, what it returns, and
    what raising does.
    """
    fn = hooks()[name]
    text = inspect.getdoc(fn) or ""
    parameters = list(inspect.signature(fn).parameters)
    assert re.search(r"\bCalled\b", text), "when it is called, and by whom"
    assert "Args:" in text
    for parameter in parameters:
        assert re.search(rf"^\s+{parameter}: \S", text, re.MULTILINE), (
            f"says nothing of {parameter}"
        )
    assert "If it raises" in text
    annotations = inspect.get_annotations(fn)
    assert set(annotations) == {*parameters, "return"}, "typed throughout"
    if annotations["return"] != "None":
        assert "Returns:" in text
        assert "None" in text.partition("Returns:")[2]


def test_hookspecs_hold_nothing_but_hooks() -> None:
    """The module of hooks defines hooks and the type of what they are handed."""
    own = {
        name
        for name, thing in vars(hookspecs).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == hookspecs.__name__
    }
    assert own == {*hooks(), "Register"}


# behaviour


def test_policies_apply_in_registration_order() -> None:
    """Each house policy gets the definition as the one before left it. None is no change."""

    def policy(suffix: str | None) -> Any:
        def transload_before_submit(app: AppDef) -> AppDef | None:
            return None if suffix is None else AppDef(app.name + suffix)

        return module("policy", transload_before_submit=hookimpl(transload_before_submit))

    found = Plugins(entry_points=[])
    for name, suffix in (("one", "-1"), ("none", None), ("two", "-2"), ("three", "-3")):
        found.register(policy(suffix), name)
    assert found.before_submit(AppDef("a"), "local", {}).name == "a-1-2-3"


def test_policies_refuse() -> None:
    """A policy's own error passes. Anything else, and a wrong result, name the plugin."""

    def policy(what: Any) -> Plugins:
        def transload_before_submit(app: AppDef) -> AppDef | None:
            if isinstance(what, Exception):
                raise what
            return what  # type: ignore[no-any-return]

        found = Plugins(entry_points=[])
        found.register(
            module("p", transload_before_submit=hookimpl(transload_before_submit)), "house"
        )
        return found

    for error in (SpecError("no GPUs on Fridays"), ConfigError("x")):
        with pytest.raises(type(error)) as caught:
            policy(error).before_submit(AppDef("a"), "local", {})
        assert caught.value is error
    with pytest.raises(
        PluginError, match="plugin 'house' failed in transload_before_submit: KeyError: 'x'"
    ):
        policy(KeyError("x")).before_submit(AppDef("a"), "local", {})
    with pytest.raises(PluginError, match="plugin 'house': transload_before_submit returned str"):
        policy("app").before_submit(AppDef("a"), "local", {})


def test_links_and_events_never_hurt(caplog: pytest.LogCaptureFixture) -> None:
    """An error in a link or an event is logged, and other plugins still get the event.

    The first link is taken.
    """

    def raising(**_: Any) -> Any:
        raise RuntimeError("oops")

    seen: list[str] = []

    def bad_event(event: AppEvent) -> None:
        raising()

    def good_event(event: AppEvent) -> None:
        seen.append(event.id)

    found = Plugins(entry_points=[])
    found.register(module("a", transload_app_event=hookimpl(bad_event)), "bad")
    found.register(module("b", transload_app_event=hookimpl(good_event)), "good")
    with caplog.at_level(logging.ERROR, "transload.plugins"):
        found.emit(AppEvent("h", AppState.RUNNING, 0, AppStatus(AppState.RUNNING), 0.0))
    assert seen == ["h#RUNNING#0"]
    assert "'bad' failed in transload_app_event" in caplog.text
    assert found.app_link("h") is None
    for name, link in (("early", "first"), ("late", "last"), ("silent", None)):

        def transload_app_link(handle: str, link: str | None = link) -> str | None:
            return link

        found.register(module(name, transload_app_link=hookimpl(transload_app_link)), name)
    assert found.app_link("h") == "last"

    def bad_link(handle: str) -> str | None:
        raise RuntimeError("oops")

    found.register(module("c", transload_app_link=hookimpl(bad_link)), "bad-link")
    with caplog.at_level(logging.ERROR, "transload.plugins"):
        assert found.app_link("h") is None
    assert "transload_app_link failed" in caplog.text


def test_load_attribute() -> None:
    """References are module:attribute, dots allowed behind the colon."""
    assert load_attribute("os:path.join") is __import__("os").path.join
    for reference in ("os", "os:", ":x", ""):
        with pytest.raises(ValueError, match="must be of the form"):
            load_attribute(reference)


def test_named_resource_of_a_plugin_is_found_by_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's size is known wherever sizes are named, and an unknown one gets a suggestion."""

    def transload_named_resources(register: Any) -> None:
        register("team.big", lambda: Resource(64, 8, 5))

    found = Plugins(entry_points=[])
    found.register(
        module("sizes", transload_named_resources=hookimpl(transload_named_resources)), "sizes"
    )
    monkeypatch.setattr(manager, "_plugins", found)
    assert "team.big" in named_resources
    assert "team.big" in list(named_resources)
    with pytest.raises(SpecError, match=r"did you mean 'team\.big'"):
        named_resources["team.bgi"]
