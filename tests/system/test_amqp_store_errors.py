"""A store that fails, in the only way that cannot be caused from outside: a store made to fail.

The broker runs in this process, real sockets and real clients on both sides.
"""

from __future__ import annotations

import argparse
import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_shim.broker.settings import BrokerSettings
from broker_shim.completion import OnComplete
from broker_shim.errors import Fenced, StoreError, Unavailable
from broker_shim.security.guard import Guard
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.serve import command
from broker_shim.serve.bind_address import parse_listen
from broker_shim.serve.entrance import Entrance
from broker_shim.serve.metric_families import log_families
from broker_shim.serve.reporting import Reporter
from broker_shim.serve.stores import stores_of
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.state_machine.call_values import DequeueCall, EnqueueCall, StoreCall
from tests.support.stores.unbatched_calls import UnbatchedCalls
from tests.support.system.clients import TIMEOUT_S, Pipelined, connected, take

pytestmark = [pytest.mark.system, pytest.mark.slow]

OPTIONS = argparse.Namespace(memory=True, root=None, store=None, json=False, stop_requests=[])


class FailingStore(UnbatchedCalls, MemoryMessageStore):
    """The first enqueues and dequeues fail with these errors; nothing of them happens."""

    def __init__(self, enqueue: list[StoreError], dequeue: list[StoreError] | None = None) -> None:
        super().__init__()
        self.enqueue_errors = enqueue
        self.dequeue_errors = dequeue or []

    def call(self, call: StoreCall, on_complete: OnComplete, *more: Any) -> None:
        if isinstance(call, EnqueueCall) and self.enqueue_errors:
            on_complete(self.enqueue_errors.pop(0))
        elif isinstance(call, DequeueCall) and self.dequeue_errors:
            on_complete(self.dequeue_errors.pop(0))
        else:
            super().call(call, on_complete, *more)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[FailingStore, Callable[[str], None]], int]:
    """Serve a store on this thread while a client runs on another; the exit code."""

    def run_both(store: FailingStore, client: Callable[[str], None]) -> int:
        urls: list[str] = []
        announced, failures = threading.Event(), []
        stops: list[Callable[[], None]] = []

        def announce(found: Sequence[str], *_others: object) -> None:
            urls.extend(found)
            announced.set()

        def handle_signals(_loop: object, listener: Any, *_others: object) -> None:
            stops.append(listener.stop)

        def run_client() -> None:
            try:
                assert announced.wait(TIMEOUT_S)
                client(urls[0])
            except BaseException as failure:  # noqa: BLE001  # raised again below
                failures.append(failure)
            finally:
                stops[0]()

        monkeypatch.setattr(command, "announce", announce)
        monkeypatch.setattr(command, "handle_signals", handle_signals)
        thread = threading.Thread(target=run_client)
        thread.start()
        settings = BrokerSettings(probe_interval_s=0.01)
        entrance = Entrance(parse_listen("127.0.0.1:0"), Guard(SecuritySettings()))
        doors, reporter = command.Entrances(entrance, None), Reporter(None)
        code = command.serve(stores_of(store), settings, doors, OPTIONS, reporter)
        thread.join(TIMEOUT_S)
        if failures:
            raise failures[0]
        return code

    return run_both


def test_an_unavailable_store_holds_senders_back_and_then_takes_everything(run: Any) -> None:
    store = FailingStore([Unavailable("no room")] * 50)
    outcomes: list[Pipelined] = []

    def client(url: str) -> None:
        messages = [Message(id=number) for number in range(3000)]
        outcomes.append(Pipelined(url, "q", messages).run())

    assert run(store, client) == 0
    (sender,) = outcomes
    assert [condition for _id, condition in sender.refused] == ["amqp:resource-limit-exceeded"] * 50
    assert len(sender.accepted) == 2950


def test_an_accept_is_made_durable_once_the_store_is_available_again(run: Any) -> None:
    store = FailingStore([], [Unavailable("no room")] * 3)

    def client(url: str) -> None:
        Pipelined(url, "q", [Message(id=1)]).run()
        assert [m.id for m in take(url, "q", 1)] == [1]

    assert run(store, client) == 0
    assert not store.dequeue_errors


def test_a_fenced_store_ends_the_broker_with_one_line(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes: list[Pipelined] = []

    def client(url: str) -> None:
        outcomes.append(Pipelined(url, "q", [Message(id=1)]).run())

    store = FailingStore([Fenced("epoch 2 owns the root")])
    assert run(store, client) == 3
    assert outcomes[0].accepted == []
    assert outcomes[0].error
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "sparkstore serve: stopped: Fenced: epoch 2 owns the root"


@pytest.mark.parametrize("is_written", [False, True])
def test_after_a_failed_sync_no_sender_gets_an_outcome_and_the_broker_ends(
    run: Any,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_written: bool,
) -> None:
    """The message is there after the start, or it is not: before it nobody knows."""
    store = DeltaMessageStore(tmp_path / "root")
    wal, outcomes = store._log._wal, list[Pipelined]()
    assert wal is not None
    real = wal._write

    def fail(descriptor: int, buffers: list[bytes], offset: int) -> int:
        if is_written:
            real(descriptor, buffers, offset)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def client(url: str) -> None:
        Pipelined(url, "q", [Message(id=1, durable=True)]).run()
        monkeypatch.setattr(wal, "_write", fail)
        outcomes.append(Pipelined(url, "q", [Message(id=2, durable=True)]).run())

    assert run(store, client) == 1
    (sender,) = outcomes
    assert (sender.accepted, sender.refused) == ([], [])
    assert "the broker's store has ended" in str(sender.error)
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("sparkstore serve: stopped: Ended: write-ahead log: [Errno 5]")
    shown = {each.name: each.samples[0].value for each in log_families(store)}
    assert shown["sparkstore_log_failed"] == 1
    again = DeltaMessageStore(tmp_path / "root")
    assert len(again.recover().entries["q"]) == 1 + is_written
    again.close()


def test_a_store_error_of_another_client_is_not_ones_own(run: Any) -> None:
    store = FailingStore([Unavailable("no room")])

    def client(url: str) -> None:
        with connected(url) as connection:
            refused = Pipelined(url, "q", [Message(id=1)]).run()
            assert len(refused.refused) == 1
            connection.create_sender("q").send(Message(id=2))
        assert [m.id for m in take(url, "q", 1)] == [2]

    assert run(store, client) == 0
