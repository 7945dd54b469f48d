"""The Spark data source in figures: messages a second that the sink stages and publishes.

`python -m jobs.benchmarks.bench_source [MESSAGES]`: two processes are the tasks, a served root is
the store, without a JVM.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from broker_shim.spark_sink.writers import QueueWriter
from broker_shim.store.interface import Queue
from broker_shim.store.remote.remote_store import RemoteMessageStore
from jobs.benchmarks import machine
from tests.support.spark.sink_tasks import BODY, record_batches, task
from tests.support.stores.services import ServiceProcess
from tests.support.stores.stores import done

TASKS = 2


def stage(writer: QueueWriter, partition: int, count: int) -> tuple[float, object]:
    """Seconds that a task stages, and what it tells the driver."""
    batches = record_batches(BODY, [(b"x" * 200,)] * count)
    began = time.perf_counter()
    with task(partition):
        message = writer.write(iter(batches))
    return time.perf_counter() - began, message


def main(count: int) -> None:
    """Print the figures of one write."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        service = ServiceProcess(
            Path(folder) / "root", Path(folder) / "s", settings=""
        )  # as shipped
        service.start()
        store = RemoteMessageStore(service.path)
        done(store.create, Queue("q"))
        options = {"target": "q", "socket": str(service.path)}
        writer = QueueWriter(BODY, options, overwrite=False)
        with ProcessPoolExecutor(TASKS, get_context("spawn")) as pool:
            warm = [pool.submit(stage, writer, number, 1) for number in range(TASKS)]
            writer.abort([task.result()[1] for task in warm])  # type: ignore[misc]
            tasks = [pool.submit(stage, writer, number, count // TASKS) for number in range(TASKS)]
            staged = [task.result() for task in tasks]
            staged_s = max(seconds for seconds, _told in staged)
        began = time.perf_counter()
        writer.commit([message for _seconds, message in staged])  # type: ignore[misc]
        published_s = time.perf_counter() - began
        print(machine.describe())
        print(f"staged     {count / staged_s:>10,.0f} messages/s")
        print(f"published  {count / published_s:>10,.0f} messages/s")
        print(f"sink       {count / (staged_s + published_s):>10,.0f} messages/s")
        store.close()
        service.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
