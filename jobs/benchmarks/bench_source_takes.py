"""Messages a second that a stream takes: `readStream` with `settle = true`, in a real session.

`python -m jobs.benchmarks.bench_source_takes [MESSAGES]`: a served root is the store, `local[2]`
the tasks, and a Delta table the sink, by its transaction id. Beside it the rate at which the same
driver takes and settles alone, without Spark and without a sink.
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from broker_shim.completion import Completion
from broker_shim.spark_tickets import TicketStreamReader, ticket_settings
from broker_shim.spark_tickets.message_rows import ticket_schema
from broker_shim.store.interface import MessageHeader, NewMessageRun, Queue
from broker_shim.store.remote.remote_store import RemoteMessageStore
from jobs.benchmarks import machine
from sparkstore.session import local_session
from tests.support.stores.services import ServiceProcess
from tests.support.stores.stores import done

_PART = 1_000
_BODY = b"x" * 200


def fill(store: RemoteMessageStore, count: int) -> None:
    """Put so many messages on the queue."""
    for _ in range(count // _PART):
        header = MessageHeader("t", durable=True, body_bytes=len(_BODY))
        completion = Completion()
        new = NewMessageRun((header,), (_BODY,) * _PART, "q")
        store.enqueue_new(new, partial(_finish, completion))
        completion.complete()


def _finish(completion: Completion, _outcomes: object) -> None:
    completion.finish(None)


def alone_s(options: dict[str, str]) -> float:
    """Seconds that a driver takes, reads and settles all messages: it settles what was read."""
    settings = ticket_settings(options)
    reader = TicketStreamReader(settings, ticket_schema(settings))
    end, start = reader.initialOffset(), None
    began = time.perf_counter()
    while end != start:
        start, end = end, reader.latestOffset(end, reader.getDefaultReadLimit())
        for partition in reader.partitions(start, end) if end != start else ():
            for _rows in reader.read(partition):
                pass
    reader.stop()
    return time.perf_counter() - began


def main(count: int) -> None:
    """Print the figures of one query."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        place = Path(folder)
        service = ServiceProcess(place / "root", place / "s", settings="")  # as shipped
        service.start()
        store = RemoteMessageStore(service.path)
        done(store.create, Queue("q"))
        options = {"settle": "true", "queue": "q", "socket": str(service.path)}
        fill(store, count)
        driver_s = alone_s(options)
        fill(store, count)
        spark = local_session("bench")
        rates: list[float] = []

        def land(frame: DataFrame, batch: int) -> None:
            writer = frame.write.format("delta").mode("append")
            writer.options(txnAppId="bench", txnVersion=batch).save(str(place / "lake"))

        stream = spark.readStream.format("sparkstore").options(**options).load()
        query = (
            stream.writeStream.foreachBatch(land)
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        for progress in query.recentProgress:
            seconds = progress["durationMs"]["triggerExecution"] / 1000
            if progress["numInputRows"]:
                rates.append(progress["numInputRows"] / seconds)
        landed = spark.read.format("delta").load(str(place / "lake")).count()
        spark.stop()
        print(machine.describe())
        print(f"landed     {landed:>10,} of {count:,} messages")
        print(f"driver     {count / driver_s:>10,.0f} messages/s taken and settled, no sink")
        print(f"taken      {sorted(rates)[len(rates) // 2]:>10,.0f} messages/s, median batch")
        print(f"           {max(rates):>10,.0f} messages/s, best batch of {len(rates)}")
        store.close()
        service.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
