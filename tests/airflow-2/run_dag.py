"""Runs the DAG as ``dag.test()`` does, and prints what became of its tasks, as JSON on the last line."""

from __future__ import annotations

import json
import sys

from airflow.models.dagbag import DagBag
from airflow.models.xcom import XCom
from airflow.utils.session import create_session


def main(folder: str) -> None:
    """Run the DAG of a folder."""
    bag = DagBag(folder, include_examples=False)
    if bag.import_errors:
        raise SystemExit(str(bag.import_errors))
    dag = bag.get_dag("two")
    run = dag.test()
    with create_session() as session:
        tasks = {
            (each.task_id, each.map_index): {"state": str(each.state), "tries": each.try_number}
            for each in run.get_task_instances(session=session)
        }
        for each in session.query(XCom).filter(XCom.dag_id == "two", XCom.run_id == run.run_id):
            tasks[each.task_id, each.map_index].setdefault("xcom", {})[each.key] = each.value
    print(json.dumps({f"{name}[{index}]" if index >= 0 else name: values for (name, index), values in tasks.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
