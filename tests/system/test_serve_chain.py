"""A broker whose settings chain other stores with its own: real clients, real roots, kill -9."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from proton import Delivery, Message

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import DtxXaStatus
from broker_shim.amqp_0_10.structs import DtxXid
from broker_shim.serve.command import main
from broker_shim.store.chain.mirror import Mirror
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from sparkstore.cli.command_line import main as command
from tests.support.stores.stores import done
from tests.support.system.clients import (
    TIMEOUT_S,
    SecondMode,
    connected,
    is_empty,
    send,
    take,
)
from tests.support.system.old_client import OldClient
from tests.support.system.processes import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

OLDER = "--amqp-0-10=same"


def settings(folder: Path, chain: str) -> str:
    path = folder / "sparkstore.toml"
    path.write_text(f"[store]\nchain = {chain}\n")
    return f"--config={path}"


def durable(number: int, body: object = b"x") -> Message:
    return Message(id=number, durable=True, body=body)


def accepted(url: str, address: str, count: int) -> list[object]:
    """Receive and accept, and be told for each that it is durable: the broker settles after us."""
    found: list[object] = []
    with connected(url) as connection:
        receiver = connection.create_receiver(address, credit=count, options=SecondMode())
        for _ in range(count):
            found.append(receiver.receive(timeout=TIMEOUT_S).id)
            delivery = receiver.fetcher.unsettled[0]
            delivery.update(Delivery.ACCEPTED)
            connection.wait(lambda delivery=delivery: delivery.settled, timeout=TIMEOUT_S)
            receiver.fetcher.settle()
    return found


def test_a_mirror_takes_the_place_of_a_root_that_is_lost_with_its_broker(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    mirror, calls = tmp_path / "mirror", tmp_path / "calls.jsonl"
    chain = f'[{{mirror = "{mirror}"}}, {{audit = "{calls}", on_failure = "drop"}}]'
    broker = start_broker(str(tmp_path / "root"), settings(tmp_path, chain))
    assert "chain=3" in broker.ready_line.split()
    large = bytes(range(256)) * (1 << 13)
    send(broker.url, "q", *map(durable, range(1, 10)), durable(10, large))
    assert accepted(broker.url, "q", 4) == [1, 2, 3, 4]
    broker.kill()
    again = start_broker(str(mirror))
    received = take(again.url, "q", 6)
    assert [message.id for message in received] == [5, 6, 7, 8, 9, 10]
    assert received[-1].body == large
    assert is_empty(again.url, "q")
    assert "it is a store of its own from now on" in again.log
    assert again.terminate() == 0
    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    count = Counter(line["operation"] for line in lines)
    assert (count["enqueue"], count["dequeue"]) == (10, 4)


XID, OTHER, LAST = (DtxXid(1, b"g", branch) for branch in (b"b", b"other", b"last"))
OK = DtxXaStatus.XA_OK
LARGE = bytes(range(256)) * (1 << 13)


def in_doubt(it: OldClient) -> list[DtxXid]:
    return sorted(it.do(c.DtxRecover()).in_doubt, key=lambda xid: xid.branch_id)


@pytest.mark.parametrize("is_promoted", [True, False])
def test_branches_of_distributed_transactions_outlive_kills_and_the_loss_of_the_root(
    start_broker: StartBroker, tmp_path: Path, is_promoted: bool
) -> None:
    root, mirror = str(tmp_path / "root"), tmp_path / "mirror"
    chain = settings(tmp_path, f'[{{mirror = "{mirror}"}}]')
    broker = start_broker(root, chain, OLDER)
    with OldClient(broker.url) as it:
        it.work_in_branch("q", XID, LARGE)
        assert it.do(c.DtxPrepare(XID)).status == OK
    with OldClient(broker.url, b"decided") as it:
        it.work_in_branch("r", LAST)
        assert it.do(c.DtxPrepare(LAST)).status == OK
        assert it.do(c.DtxCommit(LAST)).status == OK
    broker.kill()
    broker = start_broker(root, chain, OLDER)
    with OldClient(broker.url) as it:
        it.work_in_branch("s", OTHER)
        assert in_doubt(it) == [XID]
        assert it.do(c.DtxPrepare(OTHER)).status == OK
    broker.kill()
    broker = start_broker(str(mirror), OLDER) if is_promoted else start_broker(root, chain, OLDER)
    with OldClient(broker.url) as it:
        it.do(c.DtxSelect())
        assert in_doubt(it) == [XID, OTHER]
        for queue in ("q", "s"):
            assert is_empty(broker.url, queue)
        assert it.do(c.DtxCommit(XID)).status == OK
        assert it.do(c.DtxRollback(OTHER)).status == OK
        assert in_doubt(it) == []
    found = [take(broker.url, queue, 1)[0].body for queue in ("q", "r", "s")]
    assert found == [LARGE, b"put", b"taken"]
    assert all(is_empty(broker.url, queue) for queue in ("q", "r", "s"))
    assert broker.terminate() == 0


def test_what_an_operator_decided_at_a_broker_with_a_chain_its_mirror_remembers(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root, mirror = str(tmp_path / "root"), tmp_path / "mirror"
    broker = start_broker(root, settings(tmp_path, f'[{{mirror = "{mirror}"}}]'), OLDER)
    with OldClient(broker.url) as it:
        it.work_in_branch("q", XID)
        assert it.do(c.DtxPrepare(XID)).status == OK
    assert command(["transactions", root, "--rollback", "1:67:62"]) == 0
    broker.kill()
    broker = start_broker(str(mirror), OLDER)
    with OldClient(broker.url) as it:
        it.do(c.DtxSelect())
        assert it.do(c.DtxCommit(XID)).status == DtxXaStatus.XA_HEURRB
        it.do(c.DtxForget(XID))
        assert in_doubt(it) == []
    assert take(broker.url, "q", 1)[0].body == b"taken"
    assert is_empty(broker.url, "q")
    assert broker.terminate() == 0


def test_what_a_broker_did_without_its_mirror_is_there_after_the_next_start_with_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root, mirror = str(tmp_path / "root"), tmp_path / "mirror"
    chain = settings(tmp_path, f'[{{mirror = "{mirror}"}}]')
    broker = start_broker(root, chain)
    send(broker.url, "q", durable(1), durable(2))
    broker.kill()
    broker = start_broker(root)
    assert accepted(broker.url, "q", 1) == [1]
    send(broker.url, "q", durable(3))
    send(broker.url, "another", durable(4))
    broker.kill()
    broker = start_broker(root, chain)
    assert "catches up: it is" in broker.log
    assert broker.terminate() == 0
    broker = start_broker(str(mirror))
    assert [message.id for message in take(broker.url, "q", 2)] == [2, 3]
    assert take(broker.url, "another", 1)[0].id == 4


def test_a_broker_ends_with_a_member_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(tmp_path, '[{audit = "/dev/full"}]')
    assert main([str(tmp_path / "root"), "--listen=127.0.0.1:0", config]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "member audit of calls (full) failed: /dev/full: No space left on device" in error


def test_a_broker_goes_on_without_a_member_that_may_be_dropped(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    chain = settings(tmp_path, '[{audit = "/dev/full", on_failure = "drop"}]')
    broker = start_broker(str(tmp_path / "root"), chain)
    send(broker.url, "q", durable(1))
    assert take(broker.url, "q", 1)[0].id == 1
    assert broker.terminate() == 0
    assert "goes on without its member audit of calls (full)" in broker.log
    store = DeltaMessageStore(tmp_path / "root")
    noted = store.recover().configured["store-chain", "dropped: audit of calls (full)"]
    assert "No space left" in noted["why"]
    store.close()


@pytest.mark.parametrize(
    ("chain", "more", "told"),
    [
        ('[{miror = "x"}]', [], "unknown key 'miror' of [store] chain: did you mean 'mirror'?"),
        ('["x"]', [], "'x' is no table: say {mirror = …} of each"),
        ('"x"', [], "[store] chain must be a list"),
        ("[{}]", [], 'say mirror = "FOLDER" or audit = "FILE"'),
        ('[{mirror = "a", audit = "b"}]', [], 'say mirror = "FOLDER" or audit = "FILE"'),
        ('[{mirror = 5}]', [], "[store] chain: mirror is 5: say a text"),
        ('[{audit = "a", on_failure = "stop"}]', [], "on_failure is 'stop': say one of end, drop"),
        ('[{audit = "a", max_waiting = 0}]', [], "max_waiting is 0: it must be at least 1"),
        ('[{audit = "a", max_waiting = true}]', [], "max_waiting is True: say a whole number"),
        ('[{audit = "a"}]', ["--no-amqp"], "leave out chain, or --no-amqp"),
        ('[{audit = "a"}]', ["--store-socket=s"], "leave out chain, or --no-amqp, --store-socket"),
        ('[{audit = "/no/such/folder/a"}]', [], "/no/such/folder/a cannot get lines of calls"),
        ('[{mirror = "ROOT"}]', [], "is the root itself"),
    ],
)  # fmt: skip
def test_a_chain_that_cannot_be_is_told_in_one_line_and_nothing_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chain: str, more: list[str], told: str
) -> None:
    root = str(tmp_path / "root")
    config = settings(tmp_path, chain.replace("ROOT", root))
    assert main([root, "--listen=127.0.0.1:0", config, *more]) != 0
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert told in error


def test_a_root_that_is_no_mirror_of_this_one_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = DeltaMessageStore(tmp_path / "other")
    done(other.create, Queue("theirs"))
    other.close()
    config = settings(tmp_path, f'[{{mirror = "{tmp_path / "other"}"}}]')
    assert main([str(tmp_path / "root"), "--listen=127.0.0.1:0", config]) == 2
    assert "is not empty, and has followed no store yet" in capsys.readouterr().err
    other = DeltaMessageStore(tmp_path / "other")
    assert [queue.name for queue in other.recover().queues] == ["theirs"]
    other.close()


def test_memory_has_no_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = settings(tmp_path, '[{audit = "calls"}]')
    assert main(["--memory", "--listen=127.0.0.1:0", config]) == 2
    assert "[store] chain is for a root" in capsys.readouterr().err


def test_memory_has_no_witness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.toml").write_text('[store]\nwitness = "s3://lake/witness"\n')
    settings = f"--config={tmp_path / 's.toml'}"
    assert main(["--memory", "--listen=127.0.0.1:0", settings]) == 2
    assert "[store] witness is for a root" in capsys.readouterr().err


def test_a_mirror_that_was_served_by_itself_is_never_made_like_its_old_root_again(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, mirror = str(tmp_path / "root"), str(tmp_path / "mirror")
    chain = settings(tmp_path, f'[{{mirror = "{mirror}"}}]')
    assert start_broker(root, chain).terminate() == 0
    broker = start_broker(mirror)
    send(broker.url, "q", durable(1))
    assert broker.terminate() == 0
    assert main([root, "--listen=127.0.0.1:0", chain]) == 2
    assert "is not empty, and has followed no store yet" in capsys.readouterr().err
    assert take(start_broker(mirror).url, "q", 1)[0].id == 1


def test_a_mirror_that_is_behind_is_served_only_if_the_loss_is_accepted(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = DeltaMessageStore(tmp_path / "root")
    done(first.create, Queue("q"))
    store = DeltaMessageStore(tmp_path / "mirror")
    mirror = Mirror("mirror", store, first)
    mirror.catch_up()
    mirror.drop()
    first.close()
    mirror.close()
    assert main([str(tmp_path / "mirror"), "--listen=127.0.0.1:0"]) == 2
    assert "accept the loss" in capsys.readouterr().err
    broker = start_broker(str(tmp_path / "mirror"), "--accept-loss")
    assert broker.terminate() == 0
    assert start_broker(str(tmp_path / "mirror")).terminate() == 0
