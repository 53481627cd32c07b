"""Pipelines run by KFP's local runner on a real engine, with an image of this Python."""

# No "from __future__ import annotations": KFP reads the annotations of pipeline functions, and as
# types.

import json
from pathlib import Path
from typing import Any

import apps
import components as stages
import pytest
from kfp import dsl
from pipeline import make_pipeline

from transload.specs import AppDef, Role
from transload_kfp import component_from_app

pytestmark = [
    pytest.mark.timeout(300),
    # KFP says what its local runner does not do: names for people, resources
    pytest.mark.filterwarnings("ignore:.*no effect in the current local runner:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is not used by the current local runner:UserWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _sklearn() -> None:
    pytest.importorskip("sklearn")


def shell(text: str, image: str, *args: str, **fields: Any) -> AppDef:
    """Return an app of a shell command."""
    return AppDef(
        "shell", [Role("main", image, entrypoint="sh", args=["-c", text, *args], **fields)]
    )


def report(image: str, text: str = "", **results: float) -> AppDef:
    """Return an app that reports results by a shell command."""
    body = json.dumps({"schema": 1, "results": results})
    return shell(f"{text}\nprintf %s '{body}' > $TRANSLOAD_TRACKER_BASE/all.json", image)


@pytest.mark.slow
def test_digits_in_stages(docker_kfp: Path, image: str) -> None:
    """Stages split, train and evaluate, and the last reads the results of both others by key."""
    run = make_pipeline(image)(lr=0.4, seed=3)
    assert run.outputs["Output"] == "good"
    (folder,) = docker_kfp.iterdir()
    final = json.loads((folder / "train" / "results" / "final.json").read_text())["results"]
    metrics = json.loads((folder / "train" / "executor_output.json").read_text())
    metadata = metrics["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    assert metadata["accuracy"] == final["accuracy"] > 0.8
    assert (
        json.loads((folder / "split" / "results" / "split.json").read_text())["results"]["seed"]
        == 3
    )
    judged = json.loads((folder / "evaluate" / "results" / "evaluation.json").read_text())[
        "results"
    ]
    assert judged["accuracy"] == final["accuracy"]


@pytest.mark.slow
def test_loop_and_collected(docker_kfp: Path, image: str) -> None:
    """One training per learning rate runs side by side.

    The next job gets their accuracies in order.
    """
    training = component_from_app(
        stages.train,
        component_args={"image": image, "epochs": 1},
        inputs=["lr"],
        results={"final/accuracy": float},
    )
    text = """printf '{"schema": 1, "results": {"all": "%s"}}' "$1" > $TRANSLOAD_TRACKER_BASE/all.json"""
    gather = component_from_app(
        shell(text, image, "x", "[]"), inputs={"values": ("args[3]", list)}, results={"all": str}
    )

    @dsl.pipeline(name="rates")
    def rates() -> str:
        with dsl.ParallelFor([0.01, 0.5]) as lr:
            trained = training(lr=lr)
        return gather(values=dsl.Collected(trained.outputs["final_accuracy"])).outputs["all"]

    accuracies = json.loads(rates().outputs["Output"])
    (folder,) = docker_kfp.iterdir()
    reports = [
        json.loads(path.read_text())
        for path in sorted(folder.glob("for-loop-*-iteration-*/train/results/final.json"))
    ]
    assert accuracies == [each["results"]["accuracy"] for each in reports]
    assert accuracies[0] < accuracies[1]


def test_condition(docker_kfp: Path, image: str) -> None:
    """A later app runs only if the accuracy of an earlier one was good."""
    measure = component_from_app(report(image, accuracy=0.75), results=["accuracy"])

    @dsl.pipeline(name="measured")
    def measured() -> float:
        # KFP's local runner finds the value of a condition only where it is called Output
        return measure().outputs["accuracy"]

    deploy = component_from_app(report(image, name=1.0), name="deploy", results={})
    mend = component_from_app(report(image, name=2.0), name="mend", results={})

    @dsl.pipeline(name="gate")
    def gate():
        accuracy = measured().output
        with dsl.If(accuracy > 0.7):
            deploy()
        with dsl.If(accuracy <= 0.7):
            mend()

    gate()
    (folder,) = docker_kfp.iterdir()
    assert (folder / "deploy" / "results" / "all.json").exists()
    assert not (folder / "mend").exists()


@pytest.mark.parametrize("wrapped", [False, True])
def test_failure(
    docker_kfp: Path, image: str, capfd: pytest.CaptureFixture[str], wrapped: bool
) -> None:
    """A failing job fails the run with its last lines. With results its exit code is there too."""
    app = shell("echo going; echo last words >&2; exit 3", image)
    failing = component_from_app(app, results={"never": float} if wrapped else None)
    after = component_from_app(shell("echo not me", image), name="after")

    @dsl.pipeline(name="failing")
    def pipeline():
        after().after(failing())

    with pytest.raises(RuntimeError, match="FAILURE"):
        pipeline()
    shown = capfd.readouterr().out
    assert "last words" in shown
    assert "not me" not in shown
    assert ("exit code 3" in shown) == wrapped


def test_a_result_that_never_came(
    docker_kfp: Path, image: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """An app that ends well without a declared result is a failure that says what was reported."""
    made = component_from_app(report(image, loss=1.0), results=["accuracy"])

    @dsl.pipeline(name="p")
    def pipeline():
        made()

    with pytest.raises(RuntimeError, match="FAILURE"):
        pipeline()
    assert "result 'accuracy' was not reported; reported: all: loss" in capfd.readouterr().out


def test_retry(docker_kfp: Path, image: str, capfd: pytest.CaptureFixture[str]) -> None:
    """KFP tries again as often as the role says. What a failed try has reported does not count."""
    text = """
    echo '{"schema": 1, "results": {"stale": 1}}' > $TRANSLOAD_TRACKER_BASE/stale.json
    flag=$TRANSLOAD_TRACKER_BASE/../../flag
    if [ ! -e $flag ]; then : > $flag; echo first try; exit 1; fi
    rm -f $TRANSLOAD_TRACKER_BASE/stale.json
    echo second try
    echo '{"schema": 1, "results": {"tries": 2}}' > $TRANSLOAD_TRACKER_BASE/all.json
    """
    made = component_from_app(shell(text, image, max_retries=1), results={"tries": int})

    @dsl.pipeline(name="p")
    def pipeline() -> int:
        return made().outputs["tries"]

    assert pipeline().outputs["Output"] == 2
    shown = capfd.readouterr().out
    assert shown.index("first try") < shown.index("second try")


def test_typed_artifacts(docker_kfp: Path, image: str) -> None:
    """A file of one job is a Model that the next one reads by its path.

    Metrics have their numbers.
    """
    text = """cd "$TRANSLOAD_OUTPUT_DIR"; echo weights > model.pt; echo '{"loss": 0.5}' > numbers.json"""
    training = component_from_app(
        shell(text, image),
        name="training",
        results={"model.pt": dsl.Model, "numbers.json": dsl.Metrics},
    )
    text = """printf '{"schema": 1, "results": {"read": "%s"}}' "$(cat $1)" > $TRANSLOAD_TRACKER_BASE/a.json"""
    reading = component_from_app(
        shell(text, image, "x", "-"),
        name="reading",
        inputs={"model": ("args[3]", dsl.Model)},
        results={"read": str},
    )

    @dsl.pipeline(name="p")
    def pipeline() -> str:
        return reading(model=training().outputs["model"]).outputs["read"]

    assert pipeline().outputs["Output"] == "weights"
    (folder,) = docker_kfp.iterdir()
    output = json.loads((folder / "training" / "executor_output.json").read_text())["artifacts"]
    assert output["numbers"]["artifacts"][0]["metadata"] == {"loss": 0.5}


def test_exit_handler(docker_kfp: Path, image: str) -> None:
    """The task of an exit handler sees how the app ended, as a state that the table knows."""
    failing = component_from_app(shell("exit 1", image))

    text = """
    said="$(echo "$1" | tr -d '"')"
    printf '{"schema": 1, "results": {"state": "%s"}}' "$said" > $TRANSLOAD_TRACKER_BASE/a.json
    """
    seen = component_from_app(
        shell(text, image, "x", "{}"),
        name="seen",
        inputs={"status": ("args[3]", dsl.PipelineTaskFinalStatus)},
        results={"state": str},
    )

    @dsl.pipeline(name="p")
    def pipeline():
        with dsl.ExitHandler(seen()):
            failing()

    with pytest.raises(RuntimeError, match="FAILURE"):
        pipeline()
    (folder,) = docker_kfp.iterdir()
    told = (folder / "seen" / "state").read_text()
    assert "state: FAILED" in told


@pytest.mark.parametrize("wrapped", [False, True])
def test_odd_arguments(docker_kfp: Path, image: str, wrapped: bool) -> None:
    """Every argument arrives byte for byte, fixed or as input, encoded where KFP would read it."""
    words = [*apps.ODD, *(apps.PLACEHOLDERS if wrapped else [])]
    program = "import json, sys; open(sys.argv[1] + '/args', 'w').write(json.dumps(sys.argv[2:]))"
    role = Role(
        "main", image, entrypoint="python3", args=["-c", program, str(docker_kfp), *words, "given"]
    )
    made = component_from_app(
        AppDef("odd", [role]),
        inputs={"given": f"args[{3 + len(words)}]"},
        results={} if wrapped else None,
    )

    @dsl.pipeline(name="p")
    def pipeline(given: str = "x"):
        made(given=given)

    pipeline(given="größe 'x' \"y\" $HOME\n東京")
    assert json.loads((docker_kfp / "args").read_text()) == [*words, "größe 'x' \"y\" $HOME\n東京"]


def test_values_of_every_type(docker_kfp: Path, image: str) -> None:
    """What an input of each type looks like to the program."""
    program = "import json, sys; open(sys.argv[1] + '/args', 'w').write(json.dumps(sys.argv[2:]))"
    role = Role(
        "main",
        image,
        entrypoint="python3",
        args=["-c", program, str(docker_kfp), "a", "1", "0.5", "true", "[]"],
    )
    made = component_from_app(
        AppDef("typed", [role]),
        inputs={
            "s": "args[3]",
            "i": ("args[4]", int),
            "f": ("args[5]", float),
            "b": ("args[6]", bool),
            "v": ("args[7]", list),
        },
    )

    @dsl.pipeline(name="p")
    def pipeline(
        s: str = "text",
        i: int = 12,
        f: float = 0.25,
        b: bool = False,
        v: list = [1, "x"],  # noqa: B006
    ):
        made(s=s, i=i, f=f, b=b, v=v)

    pipeline()
    found = json.loads((docker_kfp / "args").read_text())
    assert [found[0], int(float(found[1])), float(found[2]), found[3]] == [
        "text",
        12,
        0.25,
        "false",
    ]
    assert json.loads(found[4]) == [1, "x"]


def test_app_id(docker_kfp: Path, image: str) -> None:
    """A job's id is made of what the run says, so that every run has another."""
    text = """printf '{"schema": 1, "results": {"id": "%s"}}' "$1" > $TRANSLOAD_TRACKER_BASE/all.json"""
    made = component_from_app(shell(text, image, "x", "${app_id}"), results={"id": str})

    @dsl.pipeline(name="p")
    def pipeline() -> str:
        return made().outputs["id"]

    first, second = pipeline().outputs["Output"], pipeline().outputs["Output"]
    assert first != second
    assert "-shell" in first and "$" not in first and "{" not in first
