"""Find the loops of a pipeline around a task on which its inputs depend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kfp.dsl.pipeline_channel import extract_pipeline_channels_from_any
from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.tasks_group import ParallelFor


def is_equal_in_a_loop(inputs: Mapping[str, Any]) -> bool:
    """Tell whether a task would have equal inputs for all items of a loop around it.

    Args:
        inputs: value of each input, the user's key among them.
    """
    pipeline = Pipeline.get_default_pipeline()
    if pipeline is None:
        return False
    around = [group for group in pipeline.groups if isinstance(group, ParallelFor)]
    used = {id(loop) for value in inputs.values() for loop in _loops_of(value, pipeline, around)}
    return any(id(loop) not in used for loop in around)


def _loops_of(value: Any, pipeline: Any, around: list[Any]) -> Iterator[Any]:
    """Yield the loops that a value depends on.

    It depends on the item of a loop, or on what a task inside of the loop returned.
    """
    for channel in extract_pipeline_channels_from_any(value):
        for loop in around:
            item = loop.loop_argument
            if channel.name == item.name or channel.name.startswith(f"{item.name}-subvar-"):
                yield loop
                yield from _loops_of(item.items_or_pipeline_channel, pipeline, around)
            elif channel.task_name is not None and _has_task(loop, channel.task_name):
                yield loop


def _has_task(group: Any, name: str) -> bool:
    return any(task.name == name for task in group.tasks) or any(
        _has_task(each, name) for each in group.groups
    )
