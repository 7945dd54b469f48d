"""The writers of the sink at a real store service: what is there when, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as t

from broker_shim.errors import Full, InvalidRequest, Unavailable
from broker_shim.spark_sink import member_names
from broker_shim.spark_sink.writers import QueueStreamWriter, QueueWriter
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from tests.support.checkout import CHECKOUT
from tests.support.spark.sink_tasks import BODY, QUERY, as_sent, run_tasks
from tests.support.stores.services import Served, served
from tests.support.stores.stores import DELTA_CONFIG, MAX_MESSAGE_BYTES, done

pytestmark = pytest.mark.system


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(member_names, "names_folder", lambda: tmp_path / "names")
    with served(tmp_path / "root") as there:
        done(there.store.create, Queue("q"))
        yield there


def writer(service: Served, schema: t.StructType = BODY, **options: Any) -> QueueWriter:
    given = {"target": "q", "socket": str(service.path), "waitSeconds": "5", **options}
    return QueueWriter(schema, given, overwrite=False)


def stream_writer(service: Served) -> QueueStreamWriter:
    given = {"target": "q", "socket": str(service.path), "checkpointlocation": "/c"}
    return QueueStreamWriter(BODY, given, overwrite=False)


def bodies(service: Served, queue: str = "q") -> list[bytes]:
    with service.store.look() as machine:
        ids = [*machine.state.queues[queue].entries]
    return [service.store.load(each).body for each in ids]


def rows(*texts: str) -> list[tuple[bytes]]:
    return [(text.encode(),) for text in texts]


def nothing_is_staged(service: Served) -> bool:
    with service.store.look() as machine:
        return not machine.state.staged and not machine.branches


def test_what_tasks_stage_is_there_when_the_driver_commits_and_in_order(service: Served) -> None:
    made = writer(service)
    many = [str(number) for number in range(2_500)]
    messages = run_tasks(made, BODY, [rows(*many), [], rows("x", "y")])
    assert bodies(service) == []
    again: QueueWriter = as_sent(made)
    again.commit(messages[::-1])
    assert bodies(service) == [text.encode() for text in [*many, "x", "y"]]
    assert nothing_is_staged(service)


def test_an_aborted_write_leaves_nothing(service: Served) -> None:
    made = writer(service)
    messages = run_tasks(made, BODY, [rows("a"), rows("b")])
    made.abort([*messages, None])
    made.abort(messages)  # once more
    assert bodies(service) == []
    assert nothing_is_staged(service)
    with pytest.raises(InvalidRequest, match="was rolled back meanwhile: nothing is published"):
        made.commit(messages)


def test_a_refused_row_is_named_and_nothing_is_left_of_its_task(service: Served) -> None:
    made = writer(service)
    bad = [*rows(*map(str, range(1_500))), (None,), *rows("z")]
    with pytest.raises(InvalidRequest, match="row 1500 of partition 1 is refused: it has no body"):
        run_tasks(made, BODY, [rows("a"), bad])
    large = [*rows("a", "b"), (b"x" * (MAX_MESSAGE_BYTES + 1),), *rows("c")]
    told = f"row 2 of partition 0 is refused: .*{MAX_MESSAGE_BYTES}"
    with pytest.raises(InvalidRequest, match=told):
        run_tasks(made, BODY, [large])
    assert bodies(service) == []
    with service.store.look() as machine:
        assert len(machine.branches) == 1  # that of the first task of the first write


def test_a_write_that_fills_a_queue_fails_as_a_whole_and_says_so(service: Served) -> None:
    done(service.store.create, Queue("small", arguments={"max_depth": 3}))
    made = writer(service, target="small", waitSeconds="0")
    with pytest.raises(Full, match=r"row 0 of partition 0: no room for 0 s .*max_depth is 3"):
        run_tasks(made, BODY, [rows("a", "b", "c", "d")])
    assert nothing_is_staged(service)
    made.commit(run_tasks(made, BODY, [rows("a", "b", "c")]))
    assert len(bodies(service, "small")) == 3


def test_a_write_waits_for_room(service: Served) -> None:
    """Somebody takes a message when the write has been refused once."""
    done(service.store.create, Queue("small", arguments={"max_depth": 3}))
    made = writer(service, target="small", waitSeconds="60")
    made.commit(run_tasks(made, BODY, [rows("a", "b", "c")]))
    is_full = threading.Event()
    with service.store.look() as machine:
        (first, *_) = machine.state.queues["small"].entries
        machine.on_full = lambda _queue: is_full.set()

    def consume() -> None:
        assert is_full.wait(30)
        done(service.store.dequeue, first, "small", None)

    consumer = threading.Thread(target=consume)
    consumer.start()
    messages = run_tasks(writer(service, target="small", waitSeconds="60"), BODY, [rows("d")])
    consumer.join()
    assert is_full.is_set()
    made.commit(messages)
    assert bodies(service, "small") == [b"b", b"c", b"d"]


def test_a_batch_of_a_stream_is_there_once_however_often_it_runs(service: Served) -> None:
    for _ in range(3):
        messages = run_tasks(stream_writer(service), BODY, [rows("a"), rows("b")], QUERY, 0)
        stream_writer(service).commit(messages, 0)
        stream_writer(service).commit(messages, 0)
        assert bodies(service) == [b"a", b"b"]
    messages = run_tasks(stream_writer(service), BODY, [rows("c"), []], QUERY, 1)
    stream_writer(service).commit(messages, 1)
    stream_writer(service).commit([], 2)
    assert bodies(service) == [b"a", b"b", b"c"]
    other = "5" + QUERY[1:]
    messages = run_tasks(stream_writer(service), BODY, [rows("d")], other, 0)
    stream_writer(service).abort(messages, 0)
    assert bodies(service) == [b"a", b"b", b"c"]
    assert nothing_is_staged(service)


def test_a_numbered_write_is_there_once(service: Served) -> None:
    def write(version: int, text: str, query: str | None = None) -> None:
        made = writer(service, txnAppId="nightly load", txnVersion=str(version))
        parts = run_tasks(made, BODY, [rows(text)], *([] if query is None else [query, version]))
        try:
            made.commit(parts)
        except InvalidRequest:
            made.abort(parts)
            raise

    for version, text in ((1, "a"), (1, "other"), (2, "b")):
        write(version, text)
    with pytest.raises(InvalidRequest, match=r"batch 1 is refused: this stream has .* batch 2"):
        write(1, "late")
    for text in ("c", "again"):
        write(3, text, QUERY)
    with pytest.raises(InvalidRequest, match=r"another query .* batch 3 .* own id as txnAppId"):
        write(3, "of another", "5" + QUERY[1:])
    assert bodies(service) == [b"a", b"b", b"c"]
    assert nothing_is_staged(service)


def test_an_exchange_sends_a_message_to_its_queues_and_keeps_its_content_once(
    service: Served,
) -> None:
    store = service.store
    done(store.create, Exchange("news", "topic"))
    done(store.create, Queue("r"))
    for queue, key in (("q", "eu.#"), ("r", "eu.de")):
        done(store.bind, ExchangeBindingKey("news", queue, key), {})
    schema = t.StructType([*BODY.fields, t.StructField("routing_key", t.StringType())])
    made = writer(service, schema, target="news")
    made.commit(run_tasks(made, schema, [[(b"both", "eu.de"), (b"one", "eu.fr")]]))
    assert bodies(service) == [b"both", b"one"]
    assert bodies(service, "r") == [b"both"]
    with store.look() as machine:
        assert {*machine.state.queues["r"].entries} < {*machine.state.queues["q"].entries}
    with pytest.raises(InvalidRequest, match=r"row 1 of partition 0 .* sends it to no queue"):
        run_tasks(made, schema, [[(b"a", "eu.de"), (b"b", "us")]])


def test_messages_larger_than_a_frame_are_staged_in_pieces(tmp_path: Path) -> None:
    large = [bytes([number]) * size for number, size in enumerate((9 << 20, 1, 7 << 20, 1 << 20))]
    config = replace(DELTA_CONFIG, max_message_bytes=16 << 20, wal_file_bytes=64 << 20)
    with served(tmp_path / "large", config=config) as there:
        done(there.store.create, Queue("q"))
        made = writer(there)
        made.commit(run_tasks(made, BODY, [[(body,) for body in large]]))
        assert bodies(there) == large


def test_many_writes_leave_no_more_members_than_ran_at_once(service: Served) -> None:
    for number in range(30):
        made = writer(service)
        made.commit(run_tasks(made, BODY, [rows(str(number))]))
    assert len(service.service.members.by_name) == 1


BAD: list[tuple[Callable[[Served], object], str]] = [
    (lambda service: writer(service, target="none"), "no queue or exchange of this store"),
    (lambda service: writer(service, trget="q"), "is 'target' meant"),
    (
        lambda _: QueueWriter(BODY, {"target": "q", "socket": "x"}, overwrite=True),
        "cannot be overwritten",
    ),
    (
        lambda _: QueueStreamWriter(BODY, {"target": "q", "path": "x"}, overwrite=True),
        "cannot be overwritten",
    ),
    (
        lambda _: QueueStreamWriter(
            BODY,
            {"target": "q", "path": "x", "txnAppId": "a", "txnVersion": "1"},
            overwrite=False,
        ),
        "a stream numbers its batches",
    ),
    (
        lambda service: run_tasks(stream_writer(service), BODY, [rows("a")]),
        "use PySpark 4.2",
    ),
    (
        lambda service: stream_writer(service).commit(
            run_tasks(stream_writer(service), BODY, [rows("a")], QUERY, 3), 4
        ),
        "staged batch 3, and Spark commits batch 4",
    ),
    (
        lambda service: writer(service, socket=f"{service.path.parent}/control.sock"),
        "administrators",
    ),
    (lambda service: writer(service, tokenFile="/none"), "token file /none"),
]


@pytest.mark.parametrize(("call", "told"), BAD)
def test_a_call_that_cannot_be_is_refused_with_what_to_do(
    service: Served, call: Callable[[Served], object], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        call(service)


def test_a_service_that_is_away_is_waited_for_so_long(service: Served, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="store service at"):
        writer(service, socket=str(tmp_path / "none"), waitSeconds="0")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_is_refused_at_once(service: Served) -> None:
    service.path.parent.chmod(0o755)
    code = (
        "from broker_shim.spark_sink.sink_settings import *;"
        f"service_address(None, {str(service.path)!r})"
    )
    command = f"import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); {code}"
    imported = "import broker_shim.spark_sink.sink_settings; "
    found = subprocess.run(
        [sys.executable, "-c", imported + command],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "this user (uid 65534) may not use the store service" in found.stderr
