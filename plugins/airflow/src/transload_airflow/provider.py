"""Tell Airflow about this package.

Every ``import airflow`` loads this, so it imports nothing.
"""


def _text(label: str, description: str, format: str = "") -> dict[str, object]:
    schema: dict[str, object] = {"type": ["string", "null"]}
    if format:
        schema["format"] = format
    return {"label": label, "description": description, "schema": schema}


def _option(description: str, **more: str) -> dict[str, str]:
    return {"description": description, "version_added": "0.1.0", "type": "string", **more}


_NAME = "transload"

_CONNECTION = {
    "connection-type": _NAME,
    "hook-class-name": "transload_airflow.hooks.TransloadHook",
    "hook-name": _NAME,
    "ui-field-behaviour": {
        "hidden-fields": ["schema", "password", "port"],
        "relabeling": {"host": "Host (Slurm by SSH, Docker)"},
        "placeholders": {"host": "login.hpc.example"},
    },
    # stored in *extra*, where any other connection setting of the kind may stand as well
    "conn-fields": {
        "kind": _text("Kind of scheduler", "slurm, kubernetes, docker, local …"),
        "context": _text("Context", "Kubernetes: of the client's configuration"),
        "kubeconfig": _text(
            "Kubeconfig", "Kubernetes: a path, or the configuration itself", "multiline"
        ),
        "tracker_base": _text("Tracker base", "where jobs report results: a folder, or a URL"),
        "cfg": {"label": "Run options", "schema": {"type": ["object", "null"]}},
    },
}

_OPTIONS = {
    "deployment_id": _option(
        "Names this Airflow installation in the ids of its jobs. Set it where jobs run on anything "
        "but the local scheduler, differently for each installation: without it, a job of another "
        "installation, of a DAG and a run of the same names, stops a task while it runs.",
        example="production",
        default="",
    ),
    "triggerer_on_same_machine": _option(
        "Whether triggerers see the machine of the workers: 'auto' (if LocalExecutor is the only "
        "executor, and not in a pod), 'true' or 'false'. Only then are jobs of the local scheduler waited for in the "
        "triggerer. A trigger that finds itself elsewhere hands back, and the task waits in place.",
        example="true",
        default="auto",
    ),
}


def get_provider_info():  # type: ignore[no-untyped-def]
    """Return the provider metadata, as Airflow's provider schema wants it."""
    places = {
        kind: [{"integration-name": _NAME, "python-modules": [f"transload_airflow.{kind}"]}]
        for kind in ("operators", "sensors", "triggers", "hooks")
    }
    page = "https://pypi.org/project/transload/"
    return {
        "package-name": "transload-airflow",
        "name": _NAME,
        "description": "Runs transload jobs (distributed, on any scheduler) as Airflow tasks.",
        "versions": ["0.1.0"],
        "integrations": [
            {"integration-name": _NAME, "external-doc-url": page, "tags": ["software"]}
        ],
        **places,
        "connection-types": [_CONNECTION],
        "extra-links": ["transload_airflow.links.AppLink"],
        "task-decorators": [
            {"name": _NAME, "class-name": "transload_airflow.decorators.transload_task"}
        ],
        "config": {
            _NAME: {
                "description": "Settings of TransloadOperator and AppSensor.",
                "options": _OPTIONS,
            }
        },
    }
