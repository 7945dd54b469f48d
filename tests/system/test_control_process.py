"""Bulk operations on a real broker: consumers at work, processes killed, sockets left behind."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message

from sparkstore.cli.command_line import main
from sparkstore.content.reader import ContentReader
from sparkstore.control import bulk_run
from sparkstore.control import client as control_module
from sparkstore.control.broker_control import BrokerControl
from sparkstore.control.bulk_run import Job, run
from sparkstore.control.client import connect, open_control
from sparkstore.control.offline import OfflineControl
from sparkstore.control.socket_address import SOCKET_NAME, SocketAddress
from sparkstore.control.undo_run import planned_undo, run_undo
from sparkstore.core.fold import State
from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest, Locked, Unavailable
from sparkstore.operations.bulk import Action, Answer, MessageDraft, Request
from sparkstore.reconcile.invariants import check
from sparkstore.recovery.recovery import recover
from sparkstore.tables.lock import FileLock
from sparkstore.tables.root import open_or_create_root, open_root
from tests.support.system.clients import Holder, Pipelined, send, settle, take
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

COUNT = 5_000


def messages(count: int) -> list[Message]:
    return [Message(id=number, body=f"m{number}", durable=True) for number in range(count)]


def state_of(root: Path) -> State:
    return recover(open_root(root)).state


def ids_of(root: Path, queue: str) -> list[int]:
    return [*state_of(root).queues[queue].entries]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def broker(start_broker: StartBroker, root: Path) -> BrokerProcess:
    return start_broker(str(root), "--queue", "q", "--queue", "other")


def test_a_running_broker_imports_definitions_or_none_of_them(
    broker: BrokerProcess, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "definitions.json"
    document: dict[str, Any] = {
        "sparkstore_definitions": 1,
        "queues": [{"name": "q"}, {"name": "new", "arguments": {"max_depth": 5}}],
        "bindings": [{"exchange": "amq.topic", "queue": "new", "key": "a.#"}],
    }
    file.write_text(json.dumps({**document, "exchanges": [{"name": "x", "type": "no"}]}))
    assert main(["definitions", "import", str(root), str(file)]) == 2
    file.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["definitions", "import", str(root), str(file), "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["changed"] for row in told] == [False, True, True]
    message = Message(subject="a.b", body="routed", durable=True)
    Pipelined(broker.url, "amq.topic", [message]).run()
    assert [message.body for message in take(broker.url, "new", 1)] == ["routed"]
    assert main(["definitions", "import", str(root), str(file), "--check"]) == 0


def test_a_consumer_keeps_what_it_holds_while_everything_else_moves(
    broker: BrokerProcess, root: Path
) -> None:
    Pipelined(broker.url, "q", messages(COUNT)).run()
    answers: list[Answer] = []

    def move() -> None:
        control = open_control(root)
        assert isinstance(control, BrokerControl)
        ids = range(1, COUNT + 1)
        answers.append(run(control, Job(Action.MOVE, "q", "other"), ids, lambda _answer: None))
        control.close()

    held = Holder(broker.url, "q", 20, when_held=move).run()
    assert held == [*range(20)]
    assert answers == [Answer(done=COUNT - 20, left=20)]
    moved = take(broker.url, "other", COUNT - 20)
    assert [message.id for message in moved] == [*range(20, COUNT)]
    assert [message.id for message in take(broker.url, "q", 20)] == [*range(20)]


def test_queues_tells_who_holds_what_now(
    broker: BrokerProcess, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*options: str) -> tuple[list[dict[str, Any]], str]:
        assert main(["queues", "--holders", "--json", *options, str(root)]) == 0
        said = capsys.readouterr()
        return [json.loads(line) for line in said.out.splitlines()], said.err

    assert ask() == ([], "")
    send(broker.url, "q", *messages(5))
    found: list[tuple[list[dict[str, Any]], str]] = []
    Holder(broker.url, "q", 2, when_held=lambda: found.extend([ask(), ask("--limit", "1")])).run()
    (((first, second), said), (cut, said_of_cut)) = found
    assert (said, cut) == ("", [first])
    assert "1 more messages are held" in said_of_cut
    assert [first["queue"], first["message_id"], second["message_id"]] == ["q", 1, 2]
    (holder,) = first["holders"]
    assert [holder] == second["holders"]


def test_each_message_is_consumed_once_while_it_may_move_under_the_consumer(
    broker: BrokerProcess, root: Path
) -> None:
    Pipelined(broker.url, "q", messages(COUNT)).run()
    accept = settle(Delivery.ACCEPTED)
    consumer = Holder(broker.url, "q", 1_000, decide=accept)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    control = open_control(root)
    ids = range(COUNT, 1_200, -1)  # from the end, while the consumer takes from the head
    total = run(control, Job(Action.MOVE, "q", "other"), ids, lambda _answer: None)
    control.close()
    thread.join(60)
    assert total.done + total.left + total.gone == COUNT - 1_200
    assert broker.terminate() == 0
    state = state_of(root)
    left = {*state.queues["q"].entries, *state.queues["other"].entries}
    consumed = {message.id + 1 for message in consumer.received}
    assert left | consumed == {*range(1, COUNT + 1)}
    assert not left & consumed
    assert len(state.queues["other"].entries) == total.done


def test_a_killed_broker_has_done_each_request_whole_or_not_and_a_rerun_ends_it(
    start_broker: StartBroker, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_run, "MAX_IDS", 500)
    broker = start_broker(str(root), "--queue", "q", "--queue", "other")
    Pipelined(broker.url, "q", messages(COUNT)).run()
    control = open_control(root)
    job = Job(Action.MOVE, "q", "other")

    def ids() -> Any:
        """Kills the broker while it has a request that it may or may not have done."""
        for message_id in range(1, COUNT + 1):
            if message_id == 3_000:
                threading.Timer(0.0, broker.kill).start()
            yield message_id

    def move_until_it_is_gone() -> None:
        while True:
            run(control, job, ids(), lambda _answer: None)

    with pytest.raises(Unavailable, match=r"run it again \(so far \d+ done, 0 left alone\)"):
        move_until_it_is_gone()
    again = open_control(root)
    assert isinstance(again, OfflineControl)
    there = len(ids_of_open(again, "other"))
    assert there % 500 == 0
    rest = run(again, job, range(1, COUNT + 1), lambda _answer: None)
    again.close()
    assert rest == Answer(done=COUNT - there, gone=there)
    assert ids_of(root, "other") == [*range(1, COUNT + 1)]
    assert [f.name for f in check(open_root(root), deep=True) if not f.holds] == []


def test_an_undo_that_a_killed_broker_cut_off_goes_on_where_it_stopped(
    start_broker: StartBroker, root: Path
) -> None:
    broker = start_broker(str(root), "--queue", "q")
    Pipelined(broker.url, "q", messages(1_000)).run()
    control = open_control(root)
    run(control, Job(Action.PURGE, "q", None, "purged01"), range(1, 1_000, 2), lambda _answer: None)
    control.flush()
    found = planned_undo(open_root(root), state_of(root), "purged01", "undo0001")
    with pytest.raises(Unavailable):
        run_undo(control, open_root(root), found, "undo0001", lambda _answer: broker.kill())
    again = open_control(root)
    assert isinstance(again, OfflineControl)
    assert len(ids_of_open(again, "q")) < 1_000
    again.flush()
    found = planned_undo(open_root(root), state_of(root), "purged01", "undo0002")
    assert found.plan.undone > 0
    run_undo(again, open_root(root), found, "undo0002", lambda _answer: None)
    again.close()
    reader = ContentReader(open_root(root))
    bodies = [reader.read(message_id)[1].decode() for message_id in ids_of(root, "q")]
    assert bodies == [f"m{number}" for number in range(1_000)]
    assert [f.name for f in check(open_root(root), deep=True) if not f.holds] == []


def ids_of_open(control: OfflineControl, queue: str) -> list[int]:
    return [*control._machine.state.queues[queue].entries]


def test_what_a_killed_broker_had_acknowledged_is_there_for_a_root_at_rest(
    start_broker: StartBroker, root: Path, tmp_path: Path
) -> None:
    """Nothing of it need be in Delta: the write-ahead log is replayed first."""
    config = tmp_path / "slow.toml"
    config.write_text("[store]\ncommit_interval_ms = 60000\n")
    broker = start_broker(str(root), "--queue", "q", "--config", str(config))
    send(broker.url, "q", *messages(3))
    broker.kill()
    control = open_control(root)
    assert control.run(Request(Action.PURGE, "q", (1, 2, 3))).done == 3
    control.close()


def test_a_wal_elsewhere_is_replayed_though_nobody_names_it(
    start_broker: StartBroker, root: Path, tmp_path: Path
) -> None:
    config = tmp_path / "store.toml"
    config.write_text(f"[store]\nwal_dir = '{tmp_path}/log'\ncommit_interval_ms = 60000\n")
    broker = start_broker(str(root), "--queue", "q", "--config", str(config))
    send(broker.url, "q", *messages(3))
    broker.kill()
    control = open_control(root)
    assert control.run(Request(Action.PURGE, "q", (1, 2))).done == 2
    control.close()
    broker = start_broker(str(root), "--config", str(config))
    assert broker.terminate() == 0
    assert ids_of(root, "q") == [3]


def test_a_wal_that_is_gone_is_missed_until_somebody_gives_it_up(
    start_broker: StartBroker, root: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    config = tmp_path / "store.toml"
    config.write_text(f"[store]\nwal_dir = '{log}'\n")
    start_broker(str(root), "--queue", "q", "--config", str(config)).kill()
    log.rename(tmp_path / "moved")
    with pytest.raises(InvalidRequest, match="not there: bring it back"):
        open_control(root)
    log.mkdir()
    open_control(root).close()


def test_the_socket_is_for_its_owner_and_goes_with_the_broker(
    broker: BrokerProcess, root: Path
) -> None:
    mode = (root / SOCKET_NAME).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    assert broker.terminate() == 0
    assert not (root / SOCKET_NAME).exists()


def test_a_socket_left_by_a_killed_broker_is_nobodys_and_is_replaced(
    start_broker: StartBroker, root: Path
) -> None:
    start_broker(str(root), "--queue", "q").kill()
    assert (root / SOCKET_NAME).exists()
    assert connect(open_root(root)) is None
    start_broker(str(root))
    served = connect(open_root(root))
    assert served is not None
    assert served.run(Request(Action.PURGE, "q", ())) == Answer()
    served.close()


def test_a_path_longer_than_a_socket_name_may_be_is_no_obstacle(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root = tmp_path / ("deep" * 30) / "root"
    root.parent.mkdir()
    start_broker(str(root), "--queue", "q")
    control = open_control(root)
    assert isinstance(control, BrokerControl)
    control.close()


def test_a_root_that_somebody_has_who_does_not_listen_is_locked(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "_PAUSE_S", 0.001)
    open_or_create_root(root)
    lock = FileLock(root / "writer.lock", str(root))
    said = r"in use by another process.*takes no orders now.*still starting: run it again"
    with pytest.raises(Locked, match=said):
        open_control(root)
    lock.release()


def test_a_root_given_as_a_uri_is_refused(root: Path) -> None:
    open_or_create_root(root)
    with pytest.raises(InvalidRequest, match="give the folder"):
        open_control(root.as_uri())


@pytest.mark.parametrize(
    "said",
    [
        *(b"{}\n", b'{"control": 1, "root_id": "other"}\n'),
        *(b"rubbish\r\n\r\n", b"[" * 200_000 + b"\r\n\r\n"),
    ],
)
def test_a_peer_that_talks_rubbish_is_told_so_and_the_broker_goes_on(
    broker: BrokerProcess, root: Path, said: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        descriptor = os.open(root, os.O_PATH)
        peer.connect(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
        os.close(descriptor)
        peer.settimeout(20)
        peer.sendall(said)
        answer = peer.makefile("rb").readline()
    assert b"InvalidRequest" in answer or answer.startswith(b"HTTP/1.1 4")
    send(broker.url, "q", *messages(1))
    assert [message.id for message in take(broker.url, "q", 1)] == [0]


def test_a_request_that_comes_byte_by_byte_is_one_request(
    broker: BrokerProcess, root: Path
) -> None:
    send(broker.url, "q", *messages(1))
    body = json.dumps({"to": "other", "ids": [1]}).encode()
    head = "POST /api/v1/queues/q/move HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    with socket.socket(socket.AF_UNIX) as peer:
        with SocketAddress(root) as address:
            peer.connect(address)
        peer.settimeout(20)
        for at in range(len(request)):
            peer.sendall(request[at : at + 1])
        answer = peer.makefile("rb").read()
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["done"] == 1


def test_a_client_that_goes_away_without_its_answer_stops_nobody(
    broker: BrokerProcess, root: Path
) -> None:
    send(broker.url, "q", *messages(2))
    first, second = connect(open_root(root)), connect(open_root(root))
    assert first is not None
    assert second is not None
    move = json.dumps({"to": "other", "ids": [1]})
    kind = {"Content-Type": "application/json"}
    first.broker._connection.request("POST", "/api/v1/queues/q/move", move, kind)
    first.close()
    assert second.run(Request(Action.MOVE, "q", (1, 2), "other")).done >= 1
    assert [message.id for message in take(broker.url, "other", 2)] == [0, 1]
    second.close()


def test_messages_that_are_put_reach_a_consumer(broker: BrokerProcess, root: Path) -> None:
    control = open_control(root)
    large = MessageDraft(MessageHeader("raw", b""), b"x" * (3 << 20))
    assert control.put("q", [large]).done == 1
    control.close()
    (message,) = take(broker.url, "q", 1)
    assert message.body == large.body


def test_each_act_is_written_down_with_what_came_of_it(
    start_broker: StartBroker, root: Path, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"
    broker = start_broker(str(root), "--queue", "q", "--audit-file", str(audit))
    send(broker.url, "q", *messages(2))
    control = open_control(root)
    control.run(Request(Action.PURGE, "q", (1, 2, 99)))
    with pytest.raises(InvalidRequest):
        control.run(Request(Action.PURGE, "none", (1,)))
    control.close()
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    done, refused = [line for line in lines if line["event"] == "administration"]
    who = f"local uid={os.getuid()} pid={os.getpid()}"
    assert (done["peer"], done["act"], done["queue"]) == (who, "purge", "q")
    assert (done["messages"], done["done"]) == (3, 2)
    assert refused["queue"] == "none"
    assert "done" not in refused
    assert "none" in refused["error"]


def test_queue_arguments_work_from_settings_to_dead_letters(
    start_broker: StartBroker, root: Path, tmp_path: Path
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(
        '[broker]\nqueues = [{name = "q", arguments = '
        '{max_delivery_count = 0, dead_letter_queue = "dead"}}]\n'
    )
    broker = start_broker(str(root), "--config", str(config))
    send(broker.url, "q", *messages(2))
    fail = settle(Delivery.MODIFIED, failed=True)
    assert Holder(broker.url, "q", 1, decide=fail).run() == [0]
    assert [message.id for message in take(broker.url, "dead", 1)] == [0]
    assert [message.id for message in take(broker.url, "q", 1)] == [1]


def test_an_argument_that_a_queue_cannot_keep_is_one_line_and_exit_2(
    start_broker: StartBroker, root: Path, tmp_path: Path
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('[broker]\nqueues = [{name = "q", arguments = {message_ttl_ms = "1h"}}]\n')
    with pytest.raises(AssertionError, match="message_ttl_ms is '1h': say an integer"):
        start_broker(str(root), "--config", str(config))


@pytest.mark.parametrize(
    "command",
    [
        ["move", "--from", "q", "--to", "q", "--where", "true"],
        ["export", "--from", "q", "--format", "parquet"],
    ],
)
def test_a_call_that_cannot_be_right_is_refused_before_spark_starts(
    root: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    open_or_create_root(root)
    name, *rest = command
    assert main([name, str(root), *rest]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["move", "requeue", "purge", "replay", "export"])
def test_a_root_that_is_none_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    queue = ["--queue", "q"] if name == "replay" else ["--from", "q"]
    to = ["--to", "other"] if name == "move" else []
    assert main([name, str(tmp_path / "no"), *queue, *to, "--where", "true"]) == 2
    assert "is not a sparkstore root" in capsys.readouterr().err
