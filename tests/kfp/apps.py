"""Component functions and apps that the tests convert."""

from __future__ import annotations

from typing import Literal

from transload.specs import AppDef, Resource, Role, VolumeMount, macros

ODD = [
    "",
    " ",
    "two words",
    "größe – 東京 🚂",
    "quote'single\"double\\back",
    "$HOME ${HOME} $(HOME) `id`",
    "a\nb\ttab",
    "*?[x]{a,b}~",
    "--flag=with=equals",
    "{not json",
    '{"a": [1, 2.50, null]}',
    "100%s %d %%",
    "#!",
    "\u00a0\u2028\x85end",
]
"""Arguments that every engine must pass on byte for byte."""

PLACEHOLDERS = [
    "{{$}}",
    "{{$.inputs.parameters['x']}}",
    "{{$.pipeline_job_name}}",
    '{"Concat": ["a", "b"]}',
    '{"Concat":["a","b"]}',
    '{"IfPresent": {"InputName": "x", "Then": ["y"]}}',
    "{{workflow.name}}",
    "/kfp-workspace/data",
]
"""Arguments that KFP, or the engine below it, would read as something else."""


def bare(program: str = "echo", args: list[str] | None = None, image: str = "img:1") -> AppDef:
    """Run a program.

    Args:
        program: the program
        args: its arguments
        image: where
    """
    return AppDef("bare", [Role("main", image, entrypoint=program, args=args or [])])


def train(
    lr: float = 0.1,
    epochs: int = 3,
    note: str = "first",
    data: str = "",
    verbose: bool = False,
    replicas: int = 1,
    image: str = "trainer:1",
    layers: list[int] | None = None,
) -> AppDef:
    """Train a model.

    Args:
        lr: step size
        epochs: how often each picture is seen
        note: a text
        data: folder of the data
        verbose: say more
        replicas: how many
        image: where
        layers: widths
    """
    args = [
        "-m",
        "train",
        f"--lr={lr}",
        "--epochs",
        str(epochs),
        "--note",
        note,
        f"--data={data}",
        f"{verbose}",
    ]
    args += [f"--layer={width}" for width in layers or ()]
    role = Role(
        "trainer",
        image,
        entrypoint="python",
        args=args,
        env={"MODE": "fast"},
        num_replicas=replicas,
    )
    return AppDef("train", [role])


def identified(name: str = "x") -> AppDef:
    """Use every macro.

    Args:
        name: a name
    """
    args = [
        "--id",
        macros.app_id,
        f"--where={macros.img_root}/data",
        macros.replica_id,
        macros.rank0_env,
        name,
    ]
    return AppDef(
        "identified", [Role("main", "img:1", entrypoint="run", args=args, env={"KIND": "x"})]
    )


def tracked(tracker_base: str, seed: int = 0) -> AppDef:
    """Report to a tracker base that it is told.

    Args:
        tracker_base: where to report
        seed: a number
    """
    return AppDef(
        "tracked",
        [Role("main", "img:1", entrypoint="run", args=["--to", tracker_base, f"--seed={seed}"])],
    )


def full() -> AppDef:
    """Have a setting of every kind."""
    role = Role(
        "main",
        "registry.example/team/job:7",
        entrypoint="python3",
        args=["job.py", "--mode=fast"],
        env={"LEVEL": "info"},
        resource=Resource(2.5, 1, 4096, capabilities={"node.kubernetes.io/instance-type": "p4"}),
        max_retries=3,
        mounts=[VolumeMount("datasets", "/data")],
        secrets={"TOKEN": "k8s:credentials/token"},
        metadata={
            "docker.container": {"ignored": True},
        },
    )
    return AppDef("full", [role], metadata={"owner": "me", "note": "any text – at all"})


def script(n: int, mode: Literal["fast", "slow"], epochs: int = 1, *rest: str) -> AppDef:
    """Run a program with arguments of its own.

    Args:
        n: a number
        mode: how
        epochs: how often
        rest: the program's
    """
    return AppDef(
        "script", [Role("main", "img:1", entrypoint="run", args=[str(n), mode, str(epochs), *rest])]
    )


def talkative(level: str = "info", n: int = 1) -> AppDef:
    """Take one argument as a variable, one as an argument.

    Args:
        level: how much it says
        n: a number
    """
    return AppDef(
        "talkative", [Role("main", "img:1", entrypoint="run", args=[str(n)], env={"LEVEL": level})]
    )


def endless(limit: float = float("inf"), n: int = 1) -> AppDef:
    """Have a default that is no finite number.

    Args:
        limit: a number
        n: another
    """
    return AppDef("endless", [Role("main", "img:1", entrypoint="run", args=[str(limit), str(n)])])
