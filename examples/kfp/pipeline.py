"""Split, train, evaluate: three apps as a pipeline. ``python examples/kfp/pipeline.py
pipeline.yaml`` compiles it.
"""

import sys
from typing import Any

from components import IMAGE, evaluate, split, train
from kfp import compiler, dsl

from transload_kfp import component_from_app


def make_pipeline(image: str = IMAGE) -> Any:
    """Return the pipeline."""
    fixed = {"image": image}
    splitting = component_from_app(
        split, component_args=fixed, inputs={"seed": ("args[1]", int)}, results={"seed": int}
    )
    training = component_from_app(
        train,
        component_args=fixed,
        inputs={"lr": float, "seed": int},
        results={"final/accuracy": float},
    )
    judging = component_from_app(
        evaluate,
        component_args={**fixed, "split": "", "trained": ""},
        inputs={"split": ("args[1]", dsl.Artifact), "trained": ("args[2]", dsl.Artifact)},
        results={"accuracy": float, "verdict": str},
    )

    @dsl.pipeline(name="digits")
    def digits(lr: float = 0.5, seed: int = 1) -> str:
        first = splitting(seed=seed)
        second = training(lr=lr, seed=first.outputs["seed"])
        third = judging(split=first.outputs["results"], trained=second.outputs["results"])
        return third.outputs["verdict"]

    return digits


if __name__ == "__main__":
    compiler.Compiler().compile(make_pipeline(), sys.argv[1])
