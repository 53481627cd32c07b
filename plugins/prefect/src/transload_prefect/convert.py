"""From an app, or a search, to a Prefect task or flow. Pure: nothing runs here, and Prefect is not
imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from transload.pipelines import AdapterCapabilities, dry_run
from transload_prefect.run import HOST
from transload_prefect.states import STATES

if TYPE_CHECKING:
    from transload_prefect.task import AppTask
    from transload_search import Search


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search; without transload-search, which is an extra, nothing
    is.
    """
    return type(source).__module__.startswith("transload_search.")


class PrefectAdapter:
    """The adapter that ``transload.pipelines.get_adapter("prefect")`` returns."""

    name = "prefect"
    state_map = STATES
    capabilities = AdapterCapabilities(
        deferred=True,
        searches=True,
        notes={
            "deferred": "one thread a scheduler watches its apps; async tasks and AppTaskRunner hold none of their own",
            "searches": "a flow, a task run for each trial; its state is in the search's tracker base",
            "retries": "a retry of the task is a new attempt",
        },
    )

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return a task (see `app_task`), or for a `transload_search.Search` a flow (see
        `search_flow`).
        """
        if _is_search(source):
            from transload_prefect.search import search_flow

            return search_flow(source, **host_options)
        from transload_prefect.tasks import app_task

        return app_task(source, **host_options)

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return what the task, or the first trial of a search, would submit; arguments as of
        `convert`.
        """
        from transload_prefect.tasks import app_task

        if not _is_search(source):
            return self._dry_run_task(app_task(source, **host_options), {})
        from transload_search import next_round

        search, made = source, self.convert(source, **host_options)
        more = {
            name: value
            for name, value in host_options.items()
            if name not in ("name", "tracker_base", "flow")
        }
        trials, _ = next_round(search, None, {}, 1)
        launch = {
            "args": {**search.constants, **trials[0].parameters},
            "scheduler": search.scheduler,
        }
        shown = app_task(
            search.component,
            name=f"{made.name}-trial",
            **{"launch": launch, "cfg": dict(search.cfg), **more},
        )
        how = (
            f"{search.trials} trials, {search.parallelism} at once, as {search.suggester} suggests"
        )
        return f"Prefect flow {made.name!r}: {how}\n{self._dry_run_task(shown, {'trial_idx': 0})}"

    def _dry_run_task(self, task: AppTask, known: Mapping[str, Any]) -> str:
        from transload_prefect.cluster import cluster_named
        from transload_prefect.run import on_cluster, runner_of

        spec = task.spec
        cluster = None if spec.cluster is None else cluster_named(spec.cluster)
        runner = runner_of(cluster, spec.inherit_env)
        request = dry_run(
            HOST, on_cluster(spec.launch, cluster), spec.options, context_args=known, runner=runner
        )
        return f"Prefect task {task.name!r} (retries: {task.retries}, tags: {sorted(task.tags)})\n{request}"
