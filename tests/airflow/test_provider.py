"""What Airflow learns of the package, and what that costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import transload_airflow
from transload.pipelines import get_adapter
from transload.specs import AppState
from transload_airflow.provider import get_provider_info
from transload_airflow.states import STATES, TASK_STATES


def fresh(code: str, **environment: str) -> Any:
    """Run code in an interpreter of its own, and return what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_provider_metadata_imports_nothing() -> None:
    """Airflow loads the metadata on every start, which brings few modules, all of them ours."""
    code = (
        "import sys; before = set(sys.modules);"
        "from transload_airflow.provider import get_provider_info; get_provider_info();"
        "import json; print(json.dumps(sorted(set(sys.modules) - before - {'json'})))"
    )
    assert [
        name for name in fresh(code) if name.partition(".")[0] not in sys.stdlib_module_names
    ] == [
        "transload",
        "transload.plugins",
        "transload.plugins.lazy",
        "transload_airflow",
        "transload_airflow.provider",
    ]


def test_provider_metadata_is_valid() -> None:
    """The metadata follows the schema that Airflow checks it with."""
    import airflow

    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_everything_that_the_metadata_names_exists() -> None:
    """Airflow finds the hook, the decorator, the link and the settings by the names in the
    metadata.
    """
    code = """
import json
from airflow.providers_manager import ProvidersManager
from airflow.configuration import conf
from airflow.sdk import task
manager = ProvidersManager()
hook = manager.hooks["transload"]
print(json.dumps({
    "hook": hook.hook_class_name,
    "link": "transload_airflow.links.AppLink" in manager.extra_links_class_names,
    "task": callable(task.transload),
    "same_machine": conf.get("transload", "triggerer_on_same_machine"),
}))
"""
    assert fresh(code) == {
        "hook": "transload_airflow.hooks.TransloadHook",
        "link": True,
        "task": True,
        "same_machine": "auto",
    }


def test_example_dags_are_found_by_airflow() -> None:
    """With its examples on, Airflow reads each file of this package's bundle as a DAG.

    Each of operator, decorator and sensor is in one.
    """
    code = """
import json
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag
folder = DagBundlesManager().get_bundle("transload-airflow-example-dags").path
bag = DagBag(folder)
tasks = {name: sorted(each.operator_name for each in dag.tasks) for name, dag in bag.dags.items()}
print(json.dumps({"errors": bag.import_errors, "tasks": tasks}))
"""
    assert fresh(code, AIRFLOW__CORE__LOAD_EXAMPLES="True") == {
        "errors": {},
        "tasks": {
            "example_app_sensor": ["AppSensor", "TransloadOperator"],
            "example_transload_decorator": ["@task", "@task.transload", "@task.transload"],
            "example_transload_operator": ["TransloadOperator"] * 3,
        },
    }


def test_plugin_imports_no_airflow() -> None:
    """The adapter is listed, with its state table, without importing Airflow."""
    code = (
        "import json, sys; from transload.pipelines import get_adapter; adapter = "
        "get_adapter('airflow');"
        "adapter.states.markdown(); adapter.dry_run('utils.echo');"
        "print(json.dumps([name for name in sys.modules if name == 'airflow']))"
    )
    assert fresh(code) == []


def test_operators_import_little_besides_airflow() -> None:
    """A DAG file with an operator loads no scheduler, no command line and no fsspec."""
    code = (
        "import json, sys; import airflow.sdk; before = set(sys.modules);"
        "from transload_airflow import TransloadOperator;"
        "TransloadOperator(task_id='x', component='utils.echo', component_args={'msg': 'x'});"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    loaded = fresh(code)
    heavy = (
        "transload.schedulers.local",
        "transload.cli",
        "pluggy",
        "fsspec",
    )
    assert [name for name in loaded if name.startswith(heavy)] == []


def test_dag_file_is_read_without_io(tmp_path: Path) -> None:
    """Reading a DAG with 100 operators opens no file, starts no process, and makes no state
    folder.
    """
    code = """
import json, sys
from airflow.sdk import DAG
from transload.specs import AppDef, Role
from transload_airflow import TransloadOperator
with DAG("warm", schedule=None):
    TransloadOperator(task_id="warm", app=AppDef("a", [Role("r", "i")]), deferrable=True)
seen = []
def look(event, arguments):
    if event in ("open", "subprocess.Popen", "os.mkdir", "socket.connect", "os.fork", "os.posix_spawn"):
        if event == "open" and str(arguments[0]).endswith((".py", ".pyc")):
            return  # a traceback or a late import
        seen.append([event, str(arguments[:1])])
sys.addaudithook(look)
with DAG("d", schedule=None):
    for number in range(100):
        TransloadOperator(task_id=f"t{number}", app=AppDef("a", [Role("r", "i")]), deferrable=True)
print(json.dumps(seen))
"""
    assert fresh(code, TRANSLOAD_HOME=str(tmp_path / "home")) == []
    assert not (tmp_path / "home").exists()


def test_public_names() -> None:
    """Every public name is there, and says what it is for."""
    for name in transload_airflow.__all__:
        thing = getattr(transload_airflow, name)
        assert name.isupper() or name.startswith("__") or thing.__doc__, name


def test_state_map_is_total() -> None:
    """Every AppState has a state of Airflow's."""
    from airflow.sdk import TaskInstanceState

    assert set(TASK_STATES) == {state.value for state in TaskInstanceState}
    assert set(STATES) == set(AppState)
    assert get_adapter("airflow").states is STATES


def test_documentation_has_the_tables() -> None:
    """The state table and the settings in the documentation are those in the code."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    assert STATES.markdown() in (docs / "reference" / "states.md").read_text(encoding="utf-8")
    text = (docs / "orchestrators" / "airflow.md").read_text(encoding="utf-8")
    for option in get_provider_info()["config"]["transload"]["options"]:
        assert option in text


@pytest.mark.parametrize("name", ["", "production"])
def test_doctor_asks_for_a_name(
    name: str, transload_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation whose jobs run elsewhere than here is asked for its name."""
    (tmp_path / "transload.toml").write_text('[schedulers.hpc]\nkind = "scripted"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRFLOW__TRANSLOAD__DEPLOYMENT_ID", name)
    command = [sys.executable, "-m", "transload", "doctor", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = json.loads(ended.stdout)["checks"]
    asked = [row for row in rows if "deployment_id" in row["detail"]]
    assert bool(asked) is (name == "")
    assert all(row["area"] == "orchestrator" and row["name"] == "airflow" for row in asked)
