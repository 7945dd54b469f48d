"""A remote store whose service goes away, comes back, or sends it away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from broker_shim.completion import Completion
from broker_shim.errors import Fenced, InvalidRequest, StoreError, Unavailable
from broker_shim.serve.stores import trouble_of
from broker_shim.store import protocol as wire
from broker_shim.store.interface import MessageHeader, Queue, StoredMessage
from broker_shim.store.remote.greeting import MemberIdentity, parse_addresses
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.cli.command_line import main
from sparkstore.replication.promote import promote
from tests.support.roots.logs import until
from tests.support.roots.replicas import replica_of
from tests.support.stores.services import Served, ServiceProcess, served, short_folder
from tests.support.stores.stores import TIMEOUT_S, done
from tests.support.system.forwarder import Cutting

pytestmark = pytest.mark.system

GREETING = MemberIdentity("remote", "one")


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as there:
        yield there


def open_calls(store: RemoteMessageStore, count: int) -> list[Completion]:
    """So many enqueues, none of which is waited for."""
    calls = []
    for _ in range(count):
        call = Completion()
        store.enqueue(store.message(MessageHeader(), b"body"), "q", call.finish)
        calls.append(call)
    return calls


def test_a_store_waits_for_a_service_that_is_away_and_goes_on_as_if_nothing_was(
    folder: Path, tmp_path: Path
) -> None:
    first = Served(tmp_path / "root", folder / "s")
    store = RemoteMessageStore(folder / "s", GREETING)
    done(store.create, Queue("q"))
    open_calls(store, 3)
    transaction = store.begin()
    done(store.enqueue, store.message(MessageHeader()), "q", transaction=transaction)
    first.close()
    calls = open_calls(store, 5)
    assert not any(call.is_complete for call in calls)
    second = Served(tmp_path / "root", folder / "s")
    for call in calls:
        call.complete(TIMEOUT_S)
    with pytest.raises(InvalidRequest, match="lost service"):
        done(store.commit, transaction)
    assert len(store.recover().entries["q"]) == 8
    store.close()
    second.close()


def test_content_in_pieces_is_sent_again_to_another_service(folder: Path, tmp_path: Path) -> None:
    first = Served(tmp_path / "root", folder / "s")
    store = RemoteMessageStore(f"unix:{folder / 's'}", GREETING)
    done(store.create, Queue("q"))
    message = done(store.stage, store.message(MessageHeader()), [b"one ", bytes(2 << 20)])
    first.close()
    second = Served(tmp_path / "root", folder / "s")
    done(store.enqueue, message, "q")
    assert store.load(message.message_id).body == b"one " + bytes(2 << 20)
    done(store.flush)
    assert store.load(message.message_id).body == b"one " + bytes(2 << 20)
    store.close()
    second.close()


@pytest.mark.parametrize("host", [None, "vhost"])
@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_root_that_is_put_back_or_wiped_under_a_member_fences_it(
    folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    host: str | None,
    *,
    is_wiped: bool,
) -> None:
    """It has acknowledged what the root has lost, so it must not go on; both ends say so."""
    root = tmp_path / "root"
    first = Served(root, folder / "s")
    store = RemoteMessageStore(folder / "s", MemberIdentity("m", "one", host))
    done(store.create, Queue("q"))
    done(store.flush)
    first.close()
    shutil.copytree(root, tmp_path / "backup")
    second = Served(root, folder / "s")
    for number in range(3):
        done(store.enqueue, store.message(MessageHeader(), b"%d" % number), "q")
    second.close()
    shutil.rmtree(root)
    if not is_wiped:
        shutil.copytree(tmp_path / "backup", root)
    third = Served(root, folder / "s")
    with pytest.raises(Fenced, match="another root" if is_wiped else "put back"):
        done(store.create, Queue("r"))
    said = [line for line in caplog.messages if "start the broker again" in line]
    assert any("is sent away" in line for line in said)
    assert any("sent us away" in line for line in said)
    store.close()
    again = RemoteMessageStore(folder / "s", MemberIdentity("m", "two", host))
    done(again.create, Queue("r"))
    again.close()
    third.close()


def test_a_body_larger_than_a_frame_goes_in_pieces(folder: Path, tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path / "root", folder / "s")
    service.start()
    store = RemoteMessageStore(folder / "s")
    done(store.create, Queue("q"))
    body = bytes(range(256)) * (40 << 10)
    message = store.message(MessageHeader(), body)
    done(store.enqueue, message, "q")
    assert store.load(message.message_id).body == body
    with pytest.raises(InvalidRequest, match="must be durable"):
        done(store.enqueue, store.message(MessageHeader(durable=False), body), "q")
    store.close()
    assert service.stop() == 0
    service.close()


def test_what_waits_too_long_for_a_service_fails_and_is_not_sent_later(
    folder: Path, tmp_path: Path
) -> None:
    first = Served(tmp_path / "root", folder / "s")
    store = RemoteMessageStore(folder / "s", GREETING, retry_s=0.3)
    done(store.create, Queue("q"))
    message = store.message(MessageHeader(), b"late")
    first.close()
    with pytest.raises(Unavailable, match="no store service for"):
        done(store.enqueue, message, "q")
    with pytest.raises(Unavailable):
        store.load(1)
    second = Served(tmp_path / "root", folder / "s")
    done(store.create, Queue("again"))
    assert dict(store.recover().entries) == {"q": {}, "again": {}}
    store.close()
    second.close()


def test_no_service_at_all_is_one_clear_line(folder: Path) -> None:
    with pytest.raises(Unavailable, match=r"store service at .*/s: .*No such file"):
        RemoteMessageStore(folder / "s", retry_s=0.05)
    for text in ("tcp:nothing", "tcp::1", "unix:/s,tcp:nothing", "tcp:a:1,tcp:b"):
        with pytest.raises(InvalidRequest, match="tcp:HOST:PORT"):
            parse_addresses(text)


def test_the_socket_of_administrators_is_told_from_that_of_members(folder: Path) -> None:
    for text in (f"unix:{folder}/control.sock", f"{folder}/control.sock"):
        with pytest.raises(InvalidRequest, match=r"where administrators ask.*service\.sock"):
            parse_addresses(text)


def test_a_store_says_that_its_service_is_away(folder: Path, tmp_path: Path) -> None:
    first = Served(tmp_path / "root", folder / "s")
    store = RemoteMessageStore(folder / "s", GREETING)
    assert trouble_of(store) is None
    first.close()
    until(lambda: trouble_of(store) is not None)
    assert "is away since" in str(trouble_of(store))
    second = Served(tmp_path / "root", folder / "s")
    until(lambda: trouble_of(store) is None)
    store.close()
    second.close()


def test_a_second_process_of_a_member_takes_its_place_and_the_first_one_is_fenced(
    tmp_path: Path,
) -> None:
    with served(tmp_path / "root") as there:
        first = RemoteMessageStore(there.path, GREETING)
        done(first.create, Queue("q"))
        second = RemoteMessageStore(there.path, MemberIdentity("remote", "two"))
        with pytest.raises(Fenced, match="took the place of member 'remote'"):
            done(first.create, Queue("r"))
        done(second.create, Queue("s"))
        second.close()
        first.close()


def test_a_store_that_was_replaced_while_it_was_away_stops(folder: Path, tmp_path: Path) -> None:
    first = Served(tmp_path / "root", folder / "s")
    store = RemoteMessageStore(folder / "s", GREETING)
    done(store.create, Queue("q"))
    message, waiting = store.message(MessageHeader()), Completion()
    first.close()
    store.enqueue(message, "q", waiting.finish)
    path = folder / "elsewhere"
    second = Served(tmp_path / "root", path)
    RemoteMessageStore(path, MemberIdentity("remote", "two")).close()
    path.rename(folder / "s")
    with pytest.raises(Fenced, match="took the place"):
        waiting.complete(TIMEOUT_S)
    with pytest.raises(Fenced):
        store.recover()
    with pytest.raises(Fenced):
        done(store.create, Queue("other"))
    store.close()
    assert second.store.recover().entries["q"] == {}
    second.close()


def test_a_completion_of_a_lost_connection_comes_in_order_with_those_after_it(
    folder: Path, tmp_path: Path
) -> None:
    first = Served(tmp_path / "root", folder / "s")
    store = RemoteMessageStore(folder / "s", GREETING)
    done(store.create, Queue("q"))
    fired: list[tuple[int, bool]] = []

    def note(number: int, error: StoreError | None) -> None:
        fired.append((number, error is None))

    for number in range(300):
        if number == 150:
            first.close()
        target = "q" if number % 3 else "nowhere"
        message = store.message(MessageHeader())
        store.enqueue(message, target, lambda error, n=number: note(n, error))
    second = Served(tmp_path / "root", folder / "s")
    store.close()
    assert fired == [(number, bool(number % 3)) for number in range(300)]
    assert len(second.store.recover().entries["q"]) == 200
    second.close()


def test_a_completion_may_call_the_store_and_read_and_those_after_it_wait(
    folder: Path, tmp_path: Path
) -> None:
    """Also when the service goes away while it reads."""
    first = Served(tmp_path / "root", folder / "s")
    store = RemoteMessageStore(folder / "s", GREETING, retry_s=0.3)
    done(store.create, Queue("q"))
    found: list[object] = []
    are_asked, is_lost, ended = threading.Event(), threading.Event(), Completion()

    def use(error: StoreError | None) -> None:
        assert are_asked.wait(TIMEOUT_S)
        made = [store.message(MessageHeader(), b"body") for _ in range(3_000)]  # of several blocks
        store.enqueue(made[0], "q", found.append)
        found.append((error, len(made), len(store.recover().entries["q"])))
        found.append(store.load(made[0].message_id).body)

    def lose(_error: StoreError | None) -> None:
        first.close()
        try:
            store.recover()
        except Unavailable as reason:
            found.append(type(reason))
        is_lost.set()

    store.enqueue(store.message(MessageHeader()), "q", use)
    store.enqueue(store.message(MessageHeader()), "q", lose)
    store.enqueue(store.message(MessageHeader()), "q", ended.finish)
    are_asked.set()
    assert is_lost.wait(TIMEOUT_S)
    second = Served(tmp_path / "root", folder / "s")
    ended.complete(TIMEOUT_S)
    assert found == [(None, 3_000, 4), b"body", Unavailable, None]
    assert len(store.recover().entries["q"]) == 4
    store.close()
    second.close()


def test_more_requests_than_the_window_wait_on_this_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_WAITING_REQUESTS", 200)
    with served(tmp_path / "root") as there:
        store = RemoteMessageStore(there.path)
        store._connection.requests._window = 200
        done(store.create, Queue("q"))
        calls = open_calls(store, 5_000)
        calls[-1].complete(TIMEOUT_S)
        assert len(store.recover().entries["q"]) == 5_000
        store.close()


def test_answers_that_a_lost_connection_cut_come_anew_and_are_not_mixed_with_those_before(
    folder: Path, tmp_path: Path
) -> None:
    body = b"".join(number.to_bytes(4, "big") for number in range(600_000))
    with served(tmp_path / "root") as service:
        between = Cutting(folder / "between", service.path)
        store = RemoteMessageStore(folder / "between", GREETING)
        done(store.create, Queue("q"))
        large = store.message(MessageHeader(), body)
        done(store.enqueue, large, "q")
        many = [store.message(MessageHeader(subject=f"{n}"), b"x") for n in range(3_000)]
        calls = [Completion() for _ in many]
        for message, call in zip(many, calls, strict=True):
            store.enqueue(message, "q", call.finish)
        for call in calls:
            call.complete(TIMEOUT_S)
        ids = [message.message_id for message in many]

        def cut(after: int) -> None:
            assert between.cut_after == 0, "the read before was cut"
            between.cut_after = after

        cut(1_400_000)
        assert store.load(large.message_id).body == body
        cut(1_400_000)
        assert store.read(large.message_id, 0, len(body)) == body
        cut(1_400_000)
        loaded = SimpleQueue[object]()
        store.prefetch([large.message_id], lambda _message_id, found: loaded.put(found))
        found = loaded.get(timeout=TIMEOUT_S)
        assert isinstance(found, StoredMessage)
        assert found.body == body
        cut(60_000)
        subjects = [header and header.subject for header in store.headers(ids)]
        assert subjects == [f"{n}" for n in range(3_000)]
        cut(60_000)
        assert [*store.recover().entries["q"]] == [large.message_id, *ids]
        cut(0)
        store.close()
        between.close()


def test_a_closed_service_ends_a_read_that_waits(folder: Path, tmp_path: Path) -> None:
    first = Served(tmp_path / "root", folder / "s")
    store = RemoteMessageStore(folder / "s", GREETING, retry_s=0.3)
    first.close()
    found: list[StoreError] = []

    def read() -> None:
        try:
            store.recover()
        except StoreError as error:
            found.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    reader.join(TIMEOUT_S)
    assert isinstance(found[0], Unavailable)
    store.close()


def test_a_member_of_a_replica_that_lacks_the_newest_ids_mixes_up_no_messages(
    folder: Path, tmp_path: Path
) -> None:
    """It has a block of ids of which the new primary does not know."""
    primary, replica = tmp_path / "root", tmp_path / "replica"
    first = Served(primary, folder / "s")
    store = RemoteMessageStore(folder / "s", GREETING)
    done(store.create, Queue("q"))
    done(store.create, Queue("r"))
    done(store.flush)
    replica_of(first.store.root, replica)
    ours = [store.message(MessageHeader(), b"%d" % number) for number in range(3)]
    done(store.enqueue, ours[0], "q")
    first.close()
    promote(replica, accept_loss=True)
    second = Served(replica, folder / "s")
    other = RemoteMessageStore(folder / "s", MemberIdentity("other", "one"))
    theirs = [other.message(MessageHeader(), b"other") for _ in range(3_000)]
    for message in theirs[:10]:
        done(other.enqueue, message, "r")
    done(store.enqueue, ours[1], "q")
    assert [store.load(number).body for number in store.recover().entries["q"]] == [b"1"]
    assert {other.load(number).body for number in other.recover().entries["r"]} == {b"other"}
    store.close()
    other.close()
    second.close()
    assert main(["verify", str(replica)]) == 0
