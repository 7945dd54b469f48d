"""Messages that are not durable, on a queue that is kept: SQL cannot see them, the broker tells."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from sparkstore.cli.command_line import main
from sparkstore.control.client import connect
from sparkstore.operations.bulk import Action, MessageDraft, Request
from sparkstore.tables.root import open_root
from tests.support.stores.controls import HEADER, Place, ServedRoot
from tests.support.stores.stores import TIMEOUT_S

FLEETING = HEADER._replace(durable=False)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedRoot]:
    place = Place(tmp_path / "root", is_served=False)
    for name in ("orders", "late"):
        place.create(name)
    place.close()
    served = ServedRoot(tmp_path / "root")
    yield served
    served.stop()


def counts(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[int, int | None]]:
    """Depth and messages that are not durable, of each queue, as `sparkstore queues` shows them."""
    assert main(["queues", "--json", str(path)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {row["queue"]: (row["depth"], row["not_durable"]) for row in rows}


def publish(served: ServedRoot, queue: str, count: int) -> None:
    """As a link does, on the loop's thread."""
    ended = Event()

    def put(left: int) -> None:
        if left:
            served.broker.publish(FLEETING, b"body", [queue], lambda _error: put(left - 1))
        else:
            ended.set()

    served.inbox.post(put, count)
    assert ended.wait(TIMEOUT_S)


def test_queues_shows_both_kinds_while_a_broker_runs(
    served: ServedRoot,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "root"
    with caplog.at_level(logging.WARNING):
        publish(served, "orders", 3)
    (line,) = [record.getMessage() for record in caplog.records if "durable" in record.message]
    assert line.startswith("'orders' gets messages that are not durable")
    assert served.broker.metrics.not_durable == 3
    assert counts(path, capsys) == {"orders": (0, 3), "late": (0, 0)}


def test_what_is_not_durable_is_so_wherever_it_is_moved(
    served: ServedRoot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "root"
    control = connect(open_root(path))
    assert control is not None
    control.put("orders", [MessageDraft(FLEETING, b"1"), MessageDraft(HEADER, b"2")])
    ids = (1, 2)
    control.run(Request(Action.MOVE, "orders", ids, "late"))
    assert counts(path, capsys)["late"][1] == 1
    control.run(Request(Action.PURGE, "late", ids))
    control.close()
    assert counts(path, capsys)["late"][1] == 0


def test_who_cannot_ask_the_broker_sees_that_it_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path / "root", is_served=False)
    place.create("orders")
    place.close()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "root" / "control.sock"))
        deaf.listen()

        def answer() -> None:
            peer, _address = deaf.accept()
            with peer:
                peer.recv(1 << 12)
                peer.sendall(b"[]\n")

        answering = threading.Thread(target=answer)
        answering.start()
        assert counts(tmp_path / "root", capsys) == {"orders": (0, None)}
        answering.join(TIMEOUT_S)
