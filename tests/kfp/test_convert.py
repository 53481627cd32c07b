"""Jobs become components with inputs and outputs, or are refused, and are written down."""

from __future__ import annotations

import base64
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import apps  # pipeline functions have no "-> None": as a text, KFP takes it for an artifact
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kfp import compiler, components, dsl, kubernetes
from kfp.dsl.types.type_utils import InconsistentTypeException

from transload.errors import SpecError, UnsupportedFeature
from transload.pipelines import Launch
from transload.specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    Workspace,
    macros,
)
from transload_kfp import (
    adapter,
    component_from_app,
    launcher_from_app,
)
from transload_kfp.convert import inline_source
from transload_kfp.inline import FILES, fill

GOLDEN = Path(__file__).with_name("golden")
GOLDENS: dict[str, dict[str, Any]] = {
    "bare": {"source": apps.bare(args=["hello wörld", "--x=1", "$HOME"])},
    "train": {
        "source": apps.train,
        "inputs": {"lr": float, "epochs": int, "note": str},
        "results": {"accuracy": float, "final/steps": int, "note": str},
    },
    "train-bare": {
        "source": apps.train,
        "component_args": {"epochs": 5},
        "inputs": {"lr": float, "data": dsl.Artifact},
    },
    "identified": {"source": apps.identified, "inputs": {"name": "args[5]"}},
    "tracked": {"source": apps.tracked, "inputs": ["seed"]},
    "full": {"source": apps.full(), "inputs": {"mode": "args[--mode]", "level": "env[LEVEL]"}},
}


def compiled(pipeline: Any, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compile, and return the pipeline spec, checked against its proto, and the platform spec."""
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    compiler.Compiler().compile(pipeline, str(path))
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    json_format.ParseDict(documents[0], pipeline_spec_pb2.PipelineSpec())  # refuses unknown fields
    if len(documents) > 1:
        json_format.ParseDict(documents[1], pipeline_spec_pb2.PlatformSpec())
    return documents[0], documents[1] if len(documents) > 1 else {}


def same_as_golden(name: str, text: str) -> None:
    """Compare with the file that people have reviewed, which ``WRITE_GOLDEN=1`` writes."""
    text = text.replace(json.dumps(inline_source())[1:-1], "<inline.py>")
    text = text.replace(
        "\n".join("      " + line if line else "" for line in inline_source().split("\n")),
        "      <inline.py>\n",
    )
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GOLDENS)
def test_component_yaml(name: str) -> None:
    """The component YAML is the reviewed one, and the same whenever it is made."""
    text = component_from_app(**GOLDENS[name]).dry_run()
    assert text == component_from_app(**GOLDENS[name]).dry_run()
    same_as_golden(name, text)


@pytest.mark.parametrize("name", GOLDENS)
def test_function_and_yaml_agree(name: str, tmp_path: Path) -> None:
    """The component object is what KFP loads from the YAML."""
    made = component_from_app(**GOLDENS[name])
    loaded = components.load_component_from_text(made.dry_run())
    first, _ = compiled(made, tmp_path / "a.yaml")
    second, _ = compiled(loaded, tmp_path / "b.yaml")
    assert made.component_spec == loaded.component_spec
    for spec in (first, second):
        spec["pipelineInfo"] = {}
    if made.identity:  # which the compiled form of the object has fixed
        inputs = first["root"]["inputDefinitions"]["parameters"]
        assert set(inputs) == set(made.component_spec.inputs) - set(made.identity)
    elif name != "full":  # whose settings the YAML of a component has no place for
        assert first == second


def test_no_yaml_is_written_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A component is made without YAML, which would take four times as long."""

    def never(*args: object, **more: object) -> None:
        raise AssertionError("YAML")

    for name in ("dump", "safe_load", "safe_load_all"):
        monkeypatch.setattr(f"yaml.{name}", never)
    made = component_from_app(
        apps.bare(args=["--lr", "0.1"]), name="a", inputs={"lr": float}, results={"loss": float}
    )
    assert made.component_spec.inputs["lr"].default == 0.1


@pytest.mark.parametrize("name", GOLDENS)
def test_pipeline_is_valid(name: str, tmp_path: Path) -> None:
    """A pipeline with the component in it is a valid pipeline spec, and the reviewed one."""
    made = component_from_app(**GOLDENS[name])
    needed = {"train-bare": True}

    @dsl.pipeline(name=f"of-{name}")
    def pipeline():
        arguments = {}
        if needed.get(name):
            arguments["data"] = dsl.importer(
                artifact_uri="s3://x/y", artifact_class=dsl.Artifact
            ).output
        made(**arguments)

    spec, platform = compiled(pipeline, tmp_path / "pipeline.yaml")
    spec.pop("sdkVersion")
    for executor in spec["deploymentSpec"]["executors"].values():
        command = executor.get("container", {}).get("command", [])
        command[:] = ["<inline.py>" if word == inline_source() else word for word in command]
    same_as_golden(
        f"{name}-pipeline", yaml.safe_dump_all([spec, platform], sort_keys=True, allow_unicode=True)
    )


# -- inputs


def test_inputs_have_types_and_defaults() -> None:
    """Named arguments become inputs with their defaults, and the others keep their values."""
    spec = component_from_app(
        apps.train, inputs={"lr": float, "epochs": int, "note": str}
    ).component_spec
    assert {name: (each.type, each.default) for name, each in spec.inputs.items()} == {
        "lr": ("Float", 0.1),
        "epochs": ("Integer", 3),
        "note": ("String", "first"),
    }
    container = spec.implementation.container
    assert container.image == "trainer:1"
    assert "--lr={{$.inputs.parameters['lr']}}" in container.args
    assert "False" in container.args
    assert component_from_app(apps.train, inputs=["lr", "epochs", "note"]).component_spec == spec
    assert not component_from_app(apps.train).component_spec.inputs


def test_a_type_that_is_given_goes_before_the_annotation() -> None:
    """What stands in the app is the default, read as the type that is given, else as the function's
    argument has it.
    """
    made = component_from_app(apps.train, inputs={"epochs": float, "note": "args[--note]"})
    assert {name: each.type for name, each in made.component_spec.inputs.items()} == {
        "epochs": "Float",
        "note": "String",
    }
    assert made.component_spec.inputs["epochs"].default == 3.0
    launcher = launcher_from_app(apps.endless, inputs={"n": float}, image="i").component_spec
    assert launcher.inputs["n"].type == "Float"
    assert "limit" not in launcher.inputs
    with pytest.raises(SpecError, match=r"inputs\['n'\]='args\[0\]': must be str"):
        launcher_from_app(apps.endless, inputs={"n": "args[0]"})


def test_a_file_beside_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A component file is found from the file that defines the pipeline, whatever the working
    directory.
    """
    (tmp_path / "place").mkdir()
    text = "from transload.specs import AppDef, Role\n\n\ndef train(lr: float = 0.1) -> AppDef:\n"
    text += '    """Run.\n\n    Args:\n        lr: a number\n    """\n'
    text += '    return AppDef("train", [Role("r", "i", entrypoint="x", args=["--lr", str(lr)])])\n'
    (tmp_path / "place" / "jobs_beside.py").write_text(text)
    (tmp_path / "place" / "defines_pipeline.py").write_text(
        "from transload_kfp import component_from_app, launcher_from_app\n"
        "made = component_from_app('jobs_beside.py:train', inputs=['lr'])\n"
        "launcher = launcher_from_app('jobs_beside.py:train', image='i', pass_env=['HF_*'])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "place"))
    monkeypatch.chdir(tmp_path)
    import defines_pipeline  # type: ignore[import-not-found]

    assert defines_pipeline.made.component_spec.inputs["lr"].type == "Float"
    container = defines_pipeline.launcher.component_spec.implementation.container
    launch = json.loads(base64.b64decode(container.command[4]))["launch"]
    assert launch["component"] == "jobs_beside.py:train"  # as the launcher's image calls it
    assert launch["pass_env"] == ["HF_*"]


def test_fixed_arguments() -> None:
    """What is fixed now is decoded as always, and is no input."""
    made = component_from_app(
        apps.train, component_args={"epochs": "7", "layers": [3, 4], "image": "i:2"}, inputs=["lr"]
    )
    container = made.component_spec.implementation.container
    assert set(made.component_spec.inputs) == {"lr"}
    assert container.image == "i:2"
    assert container.args[-2:] == ["--layer=3", "--layer=4"]
    assert container.args[container.args.index("--epochs") + 1] == "7"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"inputs": ["image"]}, ["'image'", "no argument --image", "launcher_from_app"]),
        ({"inputs": {"n": "num_replicas"}}, ["'n'", "'num_replicas'", "launcher_from_app"]),
        ({"inputs": {"lr": ("args[99]", float)}}, ["'lr'", "args[99]"]),
        ({"inputs": {"lr": int}}, ["'lr'", "'0.1'", "must be an int"]),
        ({"inputs": {"lr": set}}, ["'lr'", "artifacts of kfp.dsl"]),
        ({"inputs": {"lr": float, "x": "args[--lr]"}}, ["'x'", "two inputs"]),
        ({"component_args": {"nothing": 1}}, ["'nothing'"]),
        ({"results": {"x": list}}, ["results['x']"]),
        ({"results": {"metrics": float}}, ["results['metrics']", "taken"]),
        ({"results": {"../x": dsl.Model}}, ["results['../x']", "below"]),
        ({"component_args": {"epochs": "many"}}, ["epochs", "'many'"]),
    ],
)
def test_refused_inputs(more: dict[str, Any], words: list[str]) -> None:
    """A wrong input, argument or result is one line that names it."""
    with pytest.raises(SpecError) as caught:
        component_from_app(apps.train, **more)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_never_sees_a_value_of_run_time() -> None:
    """The function is called once, now, so that an input only replaces the text that it names."""
    seen = []

    def deciding(note: str = "calm", n: int = 2) -> AppDef:
        """Run.

        Args:
            note: a text
            n: a number
        """
        seen.append((note, n))
        args = [
            "--note",
            note,
            f"--n={n}",
            f"--twice={2 * n}",
            *(["--hurry"] if note == "urgent" else []),
        ]
        return AppDef("deciding", [Role("r", "i", entrypoint="run", args=args)])

    container = component_from_app(
        deciding, inputs=["note", "n"]
    ).component_spec.implementation.container
    assert seen == [("calm", 2)]
    values = {name: f"{{{{$.inputs.parameters['{name}']}}}}" for name in ("note", "n")}
    assert container.args == ["--note", values["note"], f"--n={values['n']}", "--twice=4"]
    component_from_app(deciding, component_args={"note": "urgent"})
    assert seen[1:] == [("urgent", 2)]


def test_names_of_options() -> None:
    """An input without a path is the program's option of its name, also where that is written with
    hyphens.
    """
    app = AppDef("a", [Role("r", "i", entrypoint="run", args=["--batch-size=4", "--data", "/x"])])
    container = component_from_app(
        app, inputs={"batch_size": int, "data": dsl.Dataset}
    ).component_spec.implementation.container
    assert container.args == [
        "--batch-size={{$.inputs.parameters['batch_size']}}",
        "--data",
        "{{$.inputs.artifacts['data'].path}}",
    ]


def test_the_folder_for_files() -> None:
    """A program that is told where its files go gets the path of the artifact."""
    made = component_from_app(apps.bare(args=["--out", "${output_dir}/x"]))
    container = made.component_spec.implementation.container
    spec = json.loads(base64.b64decode(container.command[3]))
    paths = dict(zip(spec["artifacts"], container.args[1:], strict=True))
    assert paths["files"] == "{{$.outputs.artifacts['files'].path}}"
    assert fill(spec["argv"][2], {FILES: paths["files"]}) == f"{paths['files']}/x"
    assert set(made.component_spec.outputs) == {"results", "metrics", "files"}


def test_a_variable_as_an_input() -> None:
    """With the lines that start the program, an input may be a variable, too."""
    container = component_from_app(
        apps.talkative, inputs={"n": "args[0]"}
    ).component_spec.implementation.container
    assert (container.command, container.env) == (["run"], {"LEVEL": "info"})
    # KFP sets no variables at run time
    made = component_from_app(apps.talkative, inputs={"level": "env[LEVEL]"})
    container = made.component_spec.implementation.container
    assert container.command[:2] == ["python3", "-c"]
    assert "LEVEL" not in (container.env or {})


def test_a_required_argument_is_fixed() -> None:
    """A required argument is given now, as the default of an input that stands in its place."""
    with pytest.raises(SpecError, match="script: missing: n, mode"):
        component_from_app(apps.script, inputs={"n": ("args[0]", int)})
    made = component_from_app(
        apps.script, component_args={"mode": "fast", "n": 4}, inputs={"n": ("args[0]", int)}
    )
    assert made.component_spec.inputs["n"].default == 4


def test_a_default_that_is_no_finite_number() -> None:
    """An infinity is refused, since KFP has no such default. A launcher keeps it."""
    assert component_from_app(apps.endless).component_spec.implementation.container.args[0] == "inf"
    with pytest.raises(SpecError, match=r"inputs\['x'\].*inf: .*finite"):
        component_from_app(apps.endless, inputs={"x": ("args[0]", float)})
    spec = launcher_from_app(apps.endless, image="python:3.11").component_spec
    assert (spec.inputs["limit"].default, spec.inputs["limit"].optional) == (None, True)


KINDS = (
    dsl.Artifact,
    dsl.Dataset,
    dsl.Model,
    dsl.Metrics,
    dsl.ClassificationMetrics,
    dsl.HTML,
    dsl.Markdown,
)


@pytest.mark.parametrize("kind", KINDS)
def test_artifacts_are_typed(kind: type, tmp_path: Path) -> None:
    """An artifact that goes out of one component goes into another of its class, and into none of
    another class.
    """
    makes = component_from_app(apps.bare(), name="makes", results={"sub/thing.x": kind})
    takes = component_from_app(apps.bare(args=["--it", "x"]), name="takes", inputs={"it": kind})

    @dsl.pipeline(name="p")
    def pipeline():
        takes(it=makes().outputs["sub_thing"])

    spec, _ = compiled(pipeline, tmp_path / "p.yaml")
    schema = {"schemaTitle": kind.schema_title, "schemaVersion": "0.0.1"}
    assert (
        spec["components"]["comp-makes"]["outputDefinitions"]["artifacts"]["sub_thing"][
            "artifactType"
        ]
        == schema
    )
    assert (
        spec["components"]["comp-takes"]["inputDefinitions"]["artifacts"]["it"]["artifactType"]
        == schema
    )
    wanted = {"it": dsl.SlicedClassificationMetrics}
    other = component_from_app(apps.bare(args=["--it", "x"]), name="other", inputs=wanted)
    if kind is not dsl.Artifact:
        with pytest.raises(InconsistentTypeException):

            @dsl.pipeline(name="q")
            def wrong():
                other(it=makes().outputs["sub_thing"])


def test_inputs_of_an_app() -> None:
    """Chosen arguments and variables of a given app become inputs, with what stands there as
    defaults.
    """
    app = AppDef(
        "a",
        [
            Role(
                "r", "i", entrypoint="run", args=["--lr", "0.5", "--n=3", "last"], env={"A": "true"}
            )
        ],
    )
    made = component_from_app(
        app,
        inputs={
            "lr": ("args[--lr]", float),
            "n": ("args[--n]", int),
            "Last!": "args[3]",
            "flag": ("env[A]", bool),
        },
    )
    inputs = made.component_spec.inputs
    assert {name: (each.type, each.default) for name, each in inputs.items()} == {
        "lr": ("Float", 0.5),
        "n": ("Integer", 3),
        "last": ("String", "last"),
        "flag": ("Boolean", True),
    }
    assert app.roles[0].args == ["--lr", "0.5", "--n=3", "last"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": "args[9]"}, "no such argument"),
        ({"x": "args[²]"}, "no such argument"),
        ({"x": "env[NO]"}, "no such variable"),
        ({"x": "image"}, "must be 'args"),
        ({"x": ("args[0]", int)}, "args[0]='word': must be an int"),
        ({"x": ("args[0]", list)}, "args[0]='word': must be a list"),
        (
            {"x": ("args[0]", set)},
            "must be str, int, float, bool, list, dict, or a class of artifacts",
        ),
        ({"x": "args[0]", "y": "args[0]"}, "two inputs"),
        (["x"], "no argument --x"),
    ],
)
def test_refused_inputs_of_an_app(inputs: Any, words: str) -> None:
    """A path that leads nowhere is refused by name."""
    with pytest.raises(SpecError, match=re.escape(words)):
        component_from_app(apps.bare(args=["word"]), inputs=inputs)


# -- names


def test_names_do_not_collide() -> None:
    """KFP drops unknown letters, but names that differ stay different, and valid ones stay."""
    names = [
        "größe",
        "grüße",
        "Größe",
        "gr e",
        "gr.e",
        "a b",
        "a-b",
        "a_b",
        "A_B",
        "_x_",
        "1st",
        "class",
        "東京",
        "名",
    ]
    outputs = component_from_app(
        apps.bare(), results=dict.fromkeys(names, float)
    ).component_spec.outputs
    assert len(outputs) == len(names) + 3
    assert "a_b" in outputs
    made = [
        component_from_app(apps.bare(), name=name).name
        for name in ("größe", "grüße", "東京", "京東", "9lives")
    ]
    assert len(set(made)) == 5
    assert all(name and name[0].isalpha() for name in made)


@settings(max_examples=60)
@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True))
def test_any_names_are_made_valid(names: list[str]) -> None:
    """Whatever the names, they become as many names that KFP leaves alone."""
    from kfp.dsl.utils import maybe_rename_for_k8s, sanitize_input_name

    from transload_kfp.names import component_name, port_names

    made = port_names(names)
    assert len(set(made.values())) == len(names)
    assert all(sanitize_input_name(name) == name and name.isidentifier() for name in made.values())
    assert all(
        maybe_rename_for_k8s(component_name(name)) == component_name(name) != "" for name in names
    )


def test_two_components_of_one_name(tmp_path: Path) -> None:
    """Apps whose names become the same text keep their own commands in one pipeline."""

    @dsl.pipeline(name="both")
    def pipeline():
        component_from_app(apps.bare(args=["one"]), name="a.b")()
        component_from_app(apps.bare(args=["two"]), name="a-b")()

    spec, _ = compiled(pipeline, tmp_path / "p.yaml")
    executors = spec["deploymentSpec"]["executors"].values()
    assert sorted(each["container"]["args"][0] for each in executors) == ["one", "two"]


# -- texts


@pytest.mark.parametrize("text", apps.PLACEHOLDERS)
def test_literal_placeholders_are_refused(text: str) -> None:
    """What KFP would read as something else is refused where it would reach KFP, by field name."""
    for app, path in (
        (apps.bare(args=["x", text]), "args[1]"),
        (apps.bare(program=text), "entrypoint"),
        (AppDef("a", [Role("r", "i", entrypoint="run", env={"A": text})]), "env['A']"),
    ):
        with pytest.raises(UnsupportedFeature) as caught:
            component_from_app(app)
        assert path in str(caught.value)
        assert caught.value.field == f"roles[0].{path}"


@pytest.mark.parametrize("text", [*apps.PLACEHOLDERS, *apps.ODD])
def test_encoded_arguments_survive(text: str) -> None:
    """With results declared the command travels encoded, so that nothing on the way can read it."""
    made = component_from_app(apps.bare(args=["x", text]), results={})
    container = made.component_spec.implementation.container
    spec = json.loads(base64.b64decode(container.command[3]))
    assert spec["argv"] == ["echo", "x", text]


@pytest.mark.parametrize("text", apps.ODD)
def test_odd_arguments_are_written_exactly(text: str) -> None:
    """A text without meaning for KFP stands in the YAML as it is."""
    loaded = components.load_component_from_text(
        component_from_app(apps.bare(args=["x", text, "y"])).dry_run()
    )
    assert loaded.component_spec.implementation.container.args == ["x", text, "y"]


MACROS = (macros.img_root, macros.app_id, macros.replica_id, macros.rank0_env, macros.output_dir)
# what is drawn may be a text that stands in the sources
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).filter(
    lambda text: not any(macro in text for macro in MACROS)
)


@settings(max_examples=40)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_any_text_survives_or_is_refused(words: list[str]) -> None:
    """Any arguments are passed on exactly, or refused by field name. Encoded ones always pass."""
    app = apps.bare(args=words)
    spec = json.loads(base64.b64decode(made_args(app, results={})[0][3]))
    assert spec["argv"][1:] == words
    field = None
    try:
        assert made_args(app)[1] == words
    except UnsupportedFeature as exc:
        field = exc.field
    assert field is None or field.startswith("roles[0].args[")


def made_args(app: AppDef, **more: Any) -> tuple[list[str], list[str]]:
    """Return command and arguments of an app's component, as read from its YAML."""
    loaded = components.load_component_from_text(component_from_app(app, **more).dry_run())
    container = loaded.component_spec.implementation.container
    return container.command, container.args


def test_a_cluster_would_expand_its_own_variables() -> None:
    """``$(NAME)`` of a variable of the role is a value to Kubernetes, and else it is text."""
    role = Role("r", "i", entrypoint="run", args=["$(A) $(B)"], env={"A": "1"})
    with pytest.raises(UnsupportedFeature, match=r"args\[0\]"):
        component_from_app(AppDef("a", [role]))
    role.env = {"C": "1"}
    component_from_app(AppDef("a", [role]))
    role.secrets = {"B": "k8s:s/k"}
    with pytest.raises(UnsupportedFeature, match=r"args\[0\]"):
        component_from_app(AppDef("a", [role]))


@pytest.mark.parametrize("text", ["kill $$", "$$(A)", "$(KFP_POD_NAME)"])
def test_a_cluster_would_change_a_dollar(text: str) -> None:
    """A ``$$`` or a backend's variable that Kubernetes would change is refused, or encoded."""
    with pytest.raises(UnsupportedFeature, match=r"args\[0\].*a cluster would"):
        component_from_app(app_with(args=[text]))
    with pytest.raises(UnsupportedFeature, match=r"env\['A'\].*a cluster would.*launcher_from_app"):
        component_from_app(app_with(env={"A": text}), results={})
    component_from_app(app_with(args=[text]), results={})


def test_placeholder_in_an_image_is_refused() -> None:
    """An image is a text to KFP like any other."""
    with pytest.raises(UnsupportedFeature, match=r"roles\[0\].image.*placeholder") as caught:
        component_from_app(app_with(image="{{$.pipeline_job_name}}"), results={})
    assert caught.value.field == "roles[0].image"


def test_placeholder_in_a_default_is_refused() -> None:
    """A default that looks like a placeholder would be replaced."""
    for text in ("{{$.x}}", '{"Concat": ["a", "b"]}'):
        with pytest.raises(SpecError, match="default"):
            component_from_app(apps.bare(args=[text]), inputs={"x": "args[0]"})


SAID = [
    each for each in apps.PLACEHOLDERS if not each.startswith("/")
]  # a folder is one to a command only


@pytest.mark.parametrize("text", SAID)
def test_placeholder_in_a_call_is_refused(text: str) -> None:
    """A constant that looks like a placeholder is refused by the argument's name, in lists and
    mappings too.
    """
    made = component_from_app(apps.train, inputs=["note"])
    listed = component_from_app(
        apps.bare(args=["[]", "{}"]), inputs={"l": ("args[0]", list), "d": ("args[1]", dict)}
    )
    calls: list[tuple[Any, dict[str, Any]]] = [
        (made, {"note": text}),
        (listed, {"l": ["x", text]}),
        (listed, {"d": {"x": {"y": text}}}),
        (listed, {"d": {text: 1}}),
    ]
    for component, arguments in calls:
        (name,) = arguments
        with pytest.raises(SpecError, match=f"^{name}=.*placeholder"):
            component(**arguments)


def test_outputs_in_a_text_are_no_constants(tmp_path: Path) -> None:
    """An output that is formatted into the text of an argument is passed on as KFP does it."""
    made = component_from_app(apps.train, inputs=["note"], results={"accuracy": float})

    @dsl.pipeline(name="p")
    def pipeline():
        first = made(note="first")
        made(note=f"after {first.outputs['accuracy']}")

    spec, _ = compiled(pipeline, tmp_path / "p.yaml")
    tasks = spec["root"]["dag"]["tasks"]
    inputs = tasks["train-2"]["inputs"]["parameters"]
    assert inputs["note"]["runtimeValue"]["constant"].startswith("after {{$.inputs.parameters[")
    assert any("taskOutputParameter" in each for each in inputs.values())


def test_app_id_is_passed_as_whole_inputs(tmp_path: Path) -> None:
    """What the run knows of itself reaches the command by inputs of their own, and the task is
    never cached.
    """

    @dsl.pipeline(name="p")
    def pipeline():
        component_from_app(apps.identified)()

    spec, _ = compiled(pipeline, tmp_path / "p.yaml")
    task = spec["root"]["dag"]["tasks"]["identified"]
    constants = {
        name: each["runtimeValue"]["constant"]
        for name, each in task["inputs"]["parameters"].items()
    }
    assert constants == {
        "transload_job_id": "{{$.pipeline_job_uuid}}",
        "transload_job_name": "{{$.pipeline_job_name}}",
        "transload_task_name": "{{$.pipeline_task_name}}",
    }
    assert task["cachingOptions"] == {}


# -- what cannot be


def app_with(**fields: Any) -> AppDef:
    """Return an app of one role with these fields."""
    return AppDef("a", [Role("r", fields.pop("image", "i"), entrypoint="run", **fields)])


@pytest.mark.parametrize(
    ("app", "path"),
    [
        (AppDef("a", [Role("r", "i", entrypoint="x"), Role("s", "i", entrypoint="x")]), "roles"),
        (app_with(num_replicas=2), "roles[0].num_replicas"),
        (app_with(min_replicas=0), "roles[0].min_replicas"),
        (app_with(port_map={"http": 80}), "roles[0].port_map"),
        (app_with(mounts=[BindMount("/a", "/b")]), "roles[0].mounts[0]"),
        (
            app_with(mounts=[VolumeMount("a", "/b"), DeviceMount("/dev/x", "/dev/x")]),
            "roles[0].mounts[1]",
        ),
        (app_with(mounts=[VolumeMount("a", "/b", read_only=True)]), "roles[0].mounts[0].read_only"),
        (app_with(workspace=Workspace({"/tmp": ""})), "roles[0].workspace"),
        (app_with(secrets={"A": "env:B"}), "roles[0].secrets['A']"),
        (app_with(secrets={"A": "k8s:B"}), "roles[0].secrets['A']"),
        (app_with(resource=Resource(1, 1, 1, devices={"x/y": 1})), "roles[0].resource.devices"),
        (
            app_with(resource=Resource(1, 0, 1, capabilities={"spot": True})),
            "roles[0].resource.capabilities['spot']",
        ),
        (app_with(retry_policy=RetryPolicy.HOT_SPARE), "roles[0].retry_policy"),
        (AppDef("a", [Role("r", "i", entrypoint="x", max_retries=1)], timeout=5), "timeout"),
    ],
)
def test_refused_by_field(app: AppDef, path: str) -> None:
    """What one container cannot be is refused by the field's path, and the launcher is named."""
    with pytest.raises(UnsupportedFeature) as caught:
        component_from_app(app)
    assert caught.value.field == path
    assert str(caught.value).startswith(f"{path}: ")
    assert "launcher_from_app" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"environment": "requirements.txt"}, "environment"),
        ({"pass_env": ["HF_*"]}, "pass_env"),
        ({"checkpoints": "local://transload/before"}, "checkpoints"),
    ],
)
def test_what_only_a_submit_can_have(more: dict[str, Any], field: str) -> None:
    """What one component would ignore of a launch is refused. ``convert`` makes a launcher."""
    app = AppDef("a", [Role("r", "i", entrypoint="x")])
    with pytest.raises(UnsupportedFeature, match="launcher_from_app") as caught:
        component_from_app(Launch.of(app, **more))
    assert caught.value.field == f"launch.{field}"
    made = adapter.convert(app, launch=more, image="launcher:1")
    assert "transload_kfp" in made.component_spec.implementation.container.command
    component_from_app(Launch.of(app, environment="none"))


@pytest.mark.parametrize("image", ["", "/folder", "./folder", "<MISSING>"])
def test_a_folder_is_no_image(image: str) -> None:
    """A local folder cannot be run by a cluster."""
    with pytest.raises(SpecError, match=r"roles\[0\].image"):
        component_from_app(app_with(image=image))


# -- settings


def test_settings_reach_the_task(tmp_path: Path) -> None:
    """Resources, retries, mounts, secrets, labels, placement, caching and the name are the
    task's.
    """
    made = component_from_app(apps.full())

    @dsl.pipeline(name="p")
    def pipeline():
        task = made()
        task.set_retry(2, backoff_duration="30s").set_caching_options(False)
        task.set_display_name("Full!").set_env_variable("MORE", "1")
        kubernetes.add_pod_label(task, "x", "y")
        kubernetes.add_toleration(task, key="gpu", operator="Exists")

    spec, platform = compiled(pipeline, tmp_path / "p.yaml")
    container = spec["deploymentSpec"]["executors"]["exec-full"]["container"]
    resources = container["resources"]
    assert (resources["resourceCpuLimit"], resources["resourceMemoryRequest"]) == ("2500m", "4096M")
    assert resources["accelerator"]["resourceType"] == "nvidia.com/gpu"
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "LEVEL": "info",
        "MORE": "1",
    }
    task = spec["root"]["dag"]["tasks"]["full"]
    assert task["retryPolicy"]["maxRetryCount"] == 2
    assert task["retryPolicy"]["backoffDuration"] == "30s"
    assert (task["taskInfo"]["name"], task["cachingOptions"]) == ("Full!", {})
    pod = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-full"]
    assert pod["podMetadata"]["labels"] == {"owner": "me", "x": "y"}
    assert pod["podMetadata"]["annotations"] == {"note": "any text – at all"}
    assert pod["nodeSelector"]["labels"] == {"node.kubernetes.io/instance-type": "p4"}
    assert pod["pvcMount"][0]["mountPath"] == "/data"
    assert pod["secretAsEnv"][0]["keyToEnv"] == [{"envVar": "TOKEN", "secretKey": "token"}]
    assert pod["tolerations"][0]["key"] == "gpu"


def test_settings_of_a_component_alone(tmp_path: Path) -> None:
    """A component that is compiled alone has the settings of its job, as in a pipeline."""
    spec, platform = compiled(component_from_app(apps.full()), tmp_path / "p.yaml")
    (executor,) = spec["deploymentSpec"]["executors"].values()
    assert executor["container"]["resources"]["accelerator"]["resourceType"] == "nvidia.com/gpu"
    (task,) = spec["root"]["dag"]["tasks"].values()
    assert task["retryPolicy"]["maxRetryCount"] == 3
    (pod,) = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
    assert pod["secretAsEnv"][0]["keyToEnv"] == [{"envVar": "TOKEN", "secretKey": "token"}]


def test_time_limit(tmp_path: Path) -> None:
    """An app's time limit is the pod's."""

    @dsl.pipeline(name="p")
    def pipeline():
        component_from_app(AppDef("a", [Role("r", "i", entrypoint="x")], timeout=1.5))()

    _, platform = compiled(pipeline, tmp_path / "p.yaml")
    pod = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-a"]
    assert int(pod["activeDeadlineSeconds"]) == 2


@pytest.mark.parametrize("name", ["labels", "annotations", "node_selector", "tolerations"])
def test_refused_metadata(name: str) -> None:
    """What KFP's own calls on the task set is refused in the metadata of a role, by name."""
    with pytest.raises(SpecError, match=rf"roles\[0\].metadata\['kfp.{name}'\].*add_pod_label"):
        component_from_app(app_with(metadata={f"kfp.{name}": {}}))
    component_from_app(app_with(metadata={"docker.container": {"id": "${app_id}"}}))
    with pytest.raises(SpecError, match=r"metadata\['a b'\]"):
        component_from_app(AppDef("a", app_with().roles, metadata={"a b": "c"}))


def test_original_names_in_calls(tmp_path: Path) -> None:
    """Arguments are given under the component function's own names, also where KFP needs
    another.
    """

    def camel(batchSize: int = 1) -> AppDef:
        """Run.

        Args:
            batchSize: how many
        """
        return AppDef("camel", [Role("r", "i", entrypoint="run", args=[f"--batch={batchSize}"])])

    made = component_from_app(camel, inputs={"batchSize": ("args[--batch]", int)})

    @dsl.pipeline(name="p")
    def pipeline():
        made(batchSize=4)

    spec, _ = compiled(pipeline, tmp_path / "p.yaml")
    assert (
        spec["root"]["dag"]["tasks"]["camel"]["inputs"]["parameters"]["batchsize"]["runtimeValue"][
            "constant"
        ]
        == 4
    )


def test_nothing_warns(tmp_path: Path) -> None:
    """Converting and compiling is quiet."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(
            component_from_app(apps.train, inputs=["lr"], results={"accuracy": float}),
            tmp_path / "c.yaml",
        )
