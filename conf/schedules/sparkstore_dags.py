"""The jobs by Airflow: a DAG for each, so that one that waits holds up no other.

Put this file into Airflow's folder of DAGs, and change the paths. It needs
apache-airflow-providers-apache-spark, the wheel of sparkstore installed in `HOME` on the workers,
and a Spark connection named `sparkstore` (host `local[2]`). For a root in a bucket, `s3://…`, the
host may be a cluster's master: name conf/spark-cluster.conf as the file of properties then.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

HOME = "/opt/sparkstore"
SHARE = f"{HOME}/share/sparkstore"
ROOT = "/var/lib/queues"
REPLICA = "/mnt/replica/queues"
METRICS = "/var/lib/prometheus/node-exporter"

SCHEDULES = {"compact": "*/10 * * * *", "replicate": "2-59/5 * * * *", "reconcile": "17 3 * * *"}
ARGUMENTS = {
    "compact": [ROOT],
    "replicate": [ROOT, REPLICA],
    "reconcile": ["--replica", REPLICA, ROOT],
}

for job, schedule in SCHEDULES.items():
    with DAG(
        dag_id=f"sparkstore_{job}",
        schedule=schedule,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,  # a run does all that is there to do
        max_active_runs=1,
        # Exit code 75, another job is at work, looks like any failure to Airflow: try again.
        default_args={"retries": 3, "retry_delay": timedelta(minutes=2)},
        tags=["sparkstore"],
    ) as dag:
        SparkSubmitOperator(
            task_id=job,
            conn_id="sparkstore",
            application=f"{SHARE}/jobs/{job}.py",
            application_args=["--textfile", METRICS, *ARGUMENTS[job]],
            properties_file=f"{SHARE}/conf/spark-defaults.conf",
            conf={  # in that file these two are named from the folder above it
                "spark.jars.ivySettings": f"{SHARE}/conf/ivysettings.xml",
                "spark.driver.extraJavaOptions": (
                    f"-Dlog4j2.configurationFile={SHARE}/conf/log4j2.properties"
                ),
            },
            env_vars={"PYSPARK_PYTHON": f"{HOME}/bin/python"},
            name=f"sparkstore-{job}",
        )
    globals()[dag.dag_id] = dag
