"""Import the DAGs as Airflow does; `make check-schedules` runs this with an Airflow of its own.

Ends with 1 and Airflow's words if it refuses a file, or if a DAG is not there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

SCHEDULES = Path(__file__).parents[2] / "conf" / "schedules"
EXPECTED = {"sparkstore_compact", "sparkstore_replicate", "sparkstore_reconcile"}


def main() -> int:
    found = DagBag(str(SCHEDULES / "sparkstore_dags.py"))
    for path, reason in found.import_errors.items():
        sys.stderr.write(f"{path}: {reason}\n")
    if found.import_errors or set(found.dags) != EXPECTED:
        sys.stderr.write(f"DAGs: {sorted(found.dags)}\n")
        return 1
    for dag in found.dags.values():
        (task,) = dag.tasks
        print(f"{dag.dag_id}: {task.task_type} {task.application} {task.application_args}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
