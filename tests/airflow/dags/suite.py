"""The DAGs of the tests, one for each way to run a job, which each run gives in ``conf``."""

from __future__ import annotations

import datetime as dt
import os
import sys

from airflow.sdk import DAG, Asset, AssetAlias, Variable, get_current_context, task, task_group
from parts import hello

from transload.specs import AppDef, Role
from transload_airflow import AppSensor, TransloadOperator, operator_from_app, search_group
from transload_search import Objective, Parameter, Search

START = dt.datetime(2024, 1, 1)
SHORT = dt.timedelta(seconds=0.1)
HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = {
    "poll_interval": 0.5,
    "logging_interval": 0.3,
    "defer_after": 0,
    "scheduler": "{{ dag_run.conf.get('scheduler', 'scripted') }}",
}


def app_of(dag_run):
    """Return the app that the run brings along."""
    return dag_run.conf["app"]


VARIANTS = {
    "plain": {},
    "retry": {"retries": 1, "retry_delay": SHORT},
    "detach": {"on_kill": "detach"},
    "detach_retry": {"on_kill": "detach", "retries": 1, "retry_delay": SHORT},
    "timeout": {"execution_timeout": dt.timedelta(seconds=20)},
    "startup": {"startup_timeout": 1.0, "schedule_timeout": 1.0},
    "skipping": {"skip_on_exit_code": 99, "cancelled": "skip"},
    "by_scheduler": {"retries": 2, "retry_delay": SHORT, "retries_by": "scheduler"},
}

for mode, deferrable in (("sync", False), ("deferrable", True)):
    for variant, options in VARIANTS.items():
        with DAG(f"{mode}_{variant}", schedule=None, start_date=START, max_active_runs=100) as made:
            TransloadOperator(task_id="job", app=app_of, deferrable=deferrable, **QUICK, **options)
        globals()[made.dag_id] = made

    with DAG(f"{mode}_followed", schedule=None, start_date=START, max_active_runs=100) as made:
        first = TransloadOperator(task_id="job", app=app_of, deferrable=deferrable, **QUICK)
        after = TransloadOperator(
            task_id="after", command=["echo", "after", "{{ dag.dag_id }}"], deferrable=deferrable
        )
        first >> after
    globals()[made.dag_id] = made


class Marked(TransloadOperator):
    """An operator that somebody marks just before its task defers."""

    def defer(self, **more):
        """Have the API server mark the task, then defer."""
        import json
        import urllib.request

        def call(method, path, body=None, **headers):
            url, data = (
                os.environ["AIRFLOW__API__BASE_URL"] + path,
                None if body is None else json.dumps(body).encode(),
            )
            headers = {"Content-Type": "application/json", **headers}
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=method), timeout=30
            ) as answer:
                return json.load(answer)

        token = call("GET", "/auth/token")["access_token"]
        run_id = get_current_context()["ti"].run_id
        path = f"/api/v2/dags/{self.dag_id}/dagRuns/{run_id}/taskInstances/{self.task_id}"
        call("PATCH", path, {"new_state": "failed"}, Authorization=f"Bearer {token}")
        super().defer(**more)


with DAG("marked", schedule=None, start_date=START) as marked:
    Marked(task_id="job", app=app_of, deferrable=True, **QUICK)

with DAG("begun_again", schedule=None, start_date=START) as begun_again:
    TransloadOperator(task_id="job", app=app_of, deferrable=False, **QUICK)

LATER = {"retries": 1, "retry_delay": dt.timedelta(hours=1), **QUICK}

with DAG("later", schedule=None, start_date=START, max_active_runs=100) as later:
    TransloadOperator(task_id="job", app=app_of, deferrable=False, **LATER)

with DAG(
    "timed_out", schedule=None, start_date=START, dagrun_timeout=dt.timedelta(hours=1)
) as timed_out:
    TransloadOperator(task_id="job", app=app_of, deferrable=True, **QUICK)

with DAG("clustered", schedule=None, start_date=START) as clustered:
    TransloadOperator(
        task_id="job",
        app=app_of,
        conn_id="{{ dag_run.conf['connection'] }}",
        deferrable=True,
        defer_after=0,
    )

with DAG("mapped", schedule=None, start_date=START) as mapped:
    TransloadOperator.partial(
        task_id="job",
        component=f"{HERE}/parts.py:held",
        deferrable=True,
        scheduler="scripted",
        poll_interval=0.5,
    ).expand(component_args=[{"number": number} for number in range(5)])

with DAG("launch_parameters", schedule=None, start_date=START) as launch_parameters:

    @task(multiple_outputs=True)
    def choose():
        """Decide upstream how large the next job is."""
        return {"replicas": 3, "word": "chosen"}

    chosen = choose()
    TransloadOperator(
        task_id="job",
        component=f"{HERE}/parts.py:shout",
        component_args={
            "replicas": "{{ ti.xcom_pull(task_ids='choose')['replicas'] }}",
            "word": chosen["word"],
        },
        deferrable=True,
        push_results=True,
    )

with DAG("decorated", schedule=None, start_date=START) as decorated:

    @task.transload(deferrable=True)
    def whole_app(word: str):
        """Return an app."""
        from transload.specs import AppDef, Role

        script = f"print('said {word}')"
        return AppDef(
            "said", [Role("main", image=HERE, entrypoint=sys.executable, args=["-c", script])]
        )

    @task.transload(component=f"{HERE}/parts.py:shout")
    def arguments(word: str):
        """Return the arguments of a component."""
        return {"word": word, "replicas": 2}

    whole_app("hello") >> arguments("loud")

with DAG("templated", schedule=None, start_date=START) as templated:
    script = "import os, sys; print('args', sys.argv[1:]); print('env', os.environ['WORD'])"
    app = {
        "schema": 1,
        "name": "templated",
        "roles": [
            {
                "name": "main",
                "image": HERE,
                "entrypoint": sys.executable,
                "args": ["-c", script, "{{ run_id }}"],
                "env": {"WORD": "{{ dag.dag_id }}"},
            }
        ],
    }
    TransloadOperator(task_id="job", app=app)
    TransloadOperator(task_id="literal", app=app, template_app=False)
    TransloadOperator.partial(task_id="mapped", app=app, template_app=False).expand(
        scheduler=["local"]
    )

    @task
    def made():
        """Return an app."""
        return app

    TransloadOperator(task_id="upstream", app=made(), template_app=False)

with DAG("functions", schedule=None, start_date=START) as functions:
    TransloadOperator(
        task_id="direct", component=hello, component_args={"word": "{{ dag.dag_id }}"}
    )
    TransloadOperator.partial(task_id="partial", component=hello).expand(
        component_args=[{"word": "one", "times": 2}]
    )
    TransloadOperator.partial(task_id="expanded", component_args={"word": "two"}).expand(
        component=[hello]
    )
    operator_from_app(hello, task_id="converted", component_args={"word": "three"})

    @task.transload(component=hello)
    def decorated_function(word):
        """Return the arguments of a component."""
        return {"word": word}

    decorated_function("four")

with DAG("native", schedule=None, start_date=START, render_template_as_native_obj=True) as native:
    show = "import os, sys; print('args', sys.argv[1:], os.environ['WORD'])"
    TransloadOperator(
        task_id="command", command=["echo", "1.10", '{"lr": 0.1}', "", "{{ '2.50' }}", "{{ 3 }}"]
    )
    TransloadOperator(
        task_id="app",
        app=AppDef(
            "app",
            [
                Role(
                    "main",
                    "",
                    entrypoint=sys.executable,
                    args=["-c", show, "1.10"],
                    env={"WORD": "07"},
                )
            ],
        ),
    )
    TransloadOperator(
        task_id="component",
        component=f"{HERE}/parts.py:hello",
        component_args={"word": "1.10", "times": "{{ 1 + 1 }}"},
        scheduler="{{ 'local' }}",
    )

with DAG("upstream_data", schedule=None, start_date=START) as upstream_data:

    @task
    def rows():
        """Return what looks like templates."""
        return [{"component_args": {"word": "{{ dag.dag_id }}"}, "cfg": {}}]

    @task
    def words():
        """Return what looks like a template, for a function."""
        return [{"values": ["{{ dag.dag_id }}"]}]

    @task.transload(component=hello)
    def decorated_rows(values, more):
        """Return the arguments of a component."""
        return {"word": f"{values[0]} {more}"}

    TransloadOperator.partial(
        task_id="job", component=hello, scheduler="{{ 'local' }}"
    ).expand_kwargs(rows())
    decorated_rows.partial(more="{{ 6 * 7 }}").expand_kwargs(words())


class Several(TransloadOperator):
    """An operator that runs two jobs in turn, and fails its first try after them."""

    def execute(self, context):
        """Run the first job, and in place the second one too."""
        self.component_args = {"word": "one", "replicas": 1}
        return self.go_on(context, super().execute(context))

    def resume(self, context, event=None):
        """Go on after either job was waited for in the triggerer."""
        return self.go_on(context, super().resume(context, event))

    def go_on(self, context, results):
        """Run the second job once the first has ended."""
        if results["results"]["0"]["word"] == "one":
            self.component_args = {"word": "two", "replicas": 1}
            self.key = "two"
            results = super().execute(context)
        if context["ti"].try_number == 1:
            raise RuntimeError("the first try fails")
        return results["results"]["0"]["word"]


with DAG("several", schedule=None, start_date=START) as several:
    for deferrable in (False, True):
        Several(
            task_id="twice_deferred" if deferrable else "twice",
            component=f"{HERE}/parts.py:shout",
            component_args={"word": "none", "replicas": 1},
            deferrable=deferrable,
            defer_after=0,
            retries=1,
            retry_delay=SHORT,
        )

    @task(retries=1, retry_delay=SHORT)
    def inside():
        """Execute two operators."""
        context = get_current_context()
        for word in ("one", "two"):
            job = TransloadOperator(
                task_id=word,
                component=f"{HERE}/parts.py:shout",
                component_args={"word": word, "replicas": 1},
                key=word,
                deferrable=True,
                defer_after=0,
            )
            results = job.execute(context)
        if context["ti"].try_number == 1:
            raise RuntimeError("the first try fails")
        return results["results"]["0"]["word"]

    inside()

with DAG("upstream_apps", schedule=None, start_date=START) as upstream_apps:

    def echoing(*words):
        """Return an app that echoes."""
        return AppDef("echoing", [Role("main", "", entrypoint="echo", args=list(words))])

    @task
    def one_app():
        """Return an app whose texts look like templates."""
        return echoing("hello", "{{ ds }}")

    @task
    def two_apps():
        """Return two apps."""
        return [echoing(str(number), "{{ ds }}") for number in range(2)]

    @task.transload
    async def async_function(word):
        """Return an app."""
        return echoing("said", word)

    TransloadOperator(task_id="job", app=one_app())
    TransloadOperator.partial(task_id="mapped").expand(app=two_apps())
    async_function("hello")
    TransloadOperator(
        task_id="deferred",
        component=f"{HERE}/parts.py:shout",
        component_args={"word": "hello", "replicas": 1},
        deferrable=True,
        defer_after=0,
    )

with DAG("long_lines", schedule=None, start_date=START) as long_lines:
    LONG = """
import time
time.sleep(8)
for number in range(3):
    for length in (100_000, 1_300_000):
        print("<%d>" % length + "x" * length, flush=True)
    print("between", flush=True)
"""
    TransloadOperator(
        task_id="job", command=[sys.executable, "-c", LONG], deferrable=True, defer_after=0
    )

with DAG("hidden", schedule=None, start_date=START) as hidden:
    TELL = """
import os, sys, time
said = ("told", sys.argv[1], sys.argv[2], os.environ["SESAME"])
print(*said, flush=True)
time.sleep(float(sys.argv[3]))
print("late", *said, flush=True)
"""

    @task
    def secrets():
        """Make a variable whose name Airflow takes for a secret's."""
        Variable.set("api_password", "tell-nobody-77")
        Variable.set("settings", '{"secret_word": "plaice-and-chips"}')

    written = secrets()
    for mode, deferrable in (("sync", False), ("deferrable", True)):
        words = [
            "{{ var.value.api_password }}",
            "{{ var.json.settings.secret_word }}",
            "8" if deferrable else "0",
        ]
        role = Role(
            "main",
            "",
            entrypoint=sys.executable,
            args=["-c", TELL, *words],
            secrets={"SESAME": "env:SESAME"},
        )
        written >> TransloadOperator(
            task_id=mode, app=AppDef("tells", [role]), deferrable=deferrable, defer_after=0
        )

with DAG("sensing", schedule=None, start_date=START) as sensing:
    handle = "{{ dag_run.conf['handle'] }}"
    AppSensor(task_id="deferred", handle=handle, deferrable=True, timeout=120)
    AppSensor(task_id="poking", handle=handle, deferrable=False, poke_interval=0.5, timeout=120)

with DAG("mistakes", schedule=None, start_date=START) as mistakes:
    often = {"retries": 2, "retry_delay": SHORT}
    echo = {"component": "utils.echo", "component_args": {"msg": "hello"}}
    TransloadOperator(task_id="scheduler", **echo, scheduler="slurn", **often)
    TransloadOperator(task_id="option", **echo, cfg={"log_dirr": "x"}, **often)
    TransloadOperator(task_id="spec", app='{"schema": 1, "name": "x", "roles": []}', **often)
    TransloadOperator(task_id="component", component="utils.ecco", **often)

with DAG("handover", schedule=None, start_date=START) as handover:

    def here_only(dag_run):
        """Return the app, on a scheduler that only this process can reach."""
        os.environ["TRANSLOAD_SCRIPTED_REACH"] = "process"
        return app_of(dag_run)

    TransloadOperator(task_id="job", app=here_only, deferrable=True, **QUICK)

with DAG("many", schedule=None, start_date=START, max_active_tasks=100) as many:
    TransloadOperator.partial(
        task_id="job",
        component=f"{HERE}/parts.py:held",
        deferrable=True,
        scheduler="scripted",
        poll_interval=5,
    ).expand(component_args=[{"number": number} for number in range(50)])

with DAG("grouped", schedule=None, start_date=START) as grouped:

    @task_group
    def stage(word):
        """Hold one app in a group of tasks."""
        TransloadOperator(
            task_id="job",
            component=f"{HERE}/parts.py:shout",
            component_args={"word": word, "replicas": 1},
        )

    stage.expand(word=["one", "two"])

SEARCH = Search(
    f"{HERE}/parts.py:scored",
    [Parameter("x", "float", 0, 10)],
    Objective("far"),
    trials=3,
    parallelism=2,
    constants={"gate": "{{ dag_run.conf.get('gate', '') }}"},
    scheduler="scripted",
)

with DAG("search_deferrable", schedule=None, start_date=START) as search_deferrable:
    group = search_group(SEARCH, deferrable=True, retries=1, retry_delay=SHORT, poll_interval=0.5)

    @task
    def told(best):
        """Show that the best trial can be an argument."""
        return best["parameters"]

    told(group.get_child_by_label("best").output["best"])

with DAG("search_in_place", schedule=None, start_date=START):
    search_group(SEARCH, deferrable=False, retries=1, retry_delay=SHORT, poll_interval=0.5)

with DAG("assets", schedule=None, start_date=START):
    model = Asset("file:///models/1.pt")
    for mode, deferrable, made in (
        ("sync", False, model),
        ("deferrable", True, Asset.ref(uri=model.uri)),
    ):
        for word, code in (("good", 0), ("bad", 3)):
            TransloadOperator(
                task_id=f"{mode}_{word}",
                component=f"{HERE}/parts.py:traced",
                component_args={"ends": code},
                deferrable=deferrable,
                defer_after=0,
                outlets=[made, Asset("s3://bucket/other"), AssetAlias("made")],
            )
