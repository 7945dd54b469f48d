"""A broker whose root was superseded ends, also when nobody talks to it, and says why."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from proton import Message, ProtonException

from sparkstore.replication.promote import promote
from sparkstore.tables.fencing import change_identity
from sparkstore.tables.root import open_root
from tests.support.roots.replicas import replica_of
from tests.support.system.clients import connected, send, take
from tests.support.system.processes import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "sparkstore.toml"
    file.write_text("[store]\nfence_check_s = 0.05\n")
    return str(file)


def test_an_idle_broker_ends_when_its_replica_is_promoted(
    start_broker: StartBroker, tmp_path: Path, config: str
) -> None:
    primary, replica = tmp_path / "primary", tmp_path / "replica"
    first = start_broker(str(primary), "--config", config)
    send(first.url, "q", Message(id=1, durable=True))
    assert first.terminate() == 0
    broker = start_broker(str(primary), "--config", config)
    replica_of(open_root(primary), replica)
    with pytest.raises(AssertionError, match="promote it"):
        start_broker(str(replica), "--config", config)
    promote(replica)
    assert broker.wait() == 3
    (said,) = [line for line in broker.log.splitlines() if line.startswith("sparkstore serve:")]
    assert said.startswith("sparkstore serve: stopped: Fenced: ")
    assert f"{replica} took over" in said
    with pytest.raises(AssertionError, match=r"sparkstore serve: .* took over"):
        start_broker(str(primary), "--config", config)
    again = start_broker(str(replica), "--config", config)
    assert [message.id for message in take(again.url, "q", 1)] == [1]


def test_a_broker_that_was_stopped_meanwhile_confirms_nothing_when_it_goes_on(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """It and the replica know of each other by the witness alone."""
    primary, replica, witness = (tmp_path / name for name in ("primary", "replica", "witness"))
    witness.mkdir()
    config = tmp_path / "sparkstore.toml"
    config.write_text(f'[store]\nwitness = "{witness}"\nwitness_lease_s = 1.0\n')
    first = start_broker(str(primary), "--config", str(config))
    send(first.url, "q", Message(id=1, durable=True))
    assert first.terminate() == 0
    replica_of(open_root(primary), replica)
    change_identity(open_root(primary), lambda _: {"replicas": []})
    change_identity(open_root(replica), lambda _: {"primary": "/cut/off"})
    broker = start_broker(str(primary))
    with connected(broker.url) as connection:
        sender = connection.create_sender("q")
        broker.signal(signal.SIGSTOP)
        promote(replica)
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(sender.send, Message(id=2, durable=True))
            broker.signal(signal.SIGCONT)
            with pytest.raises(ProtonException):
                told.result()
    assert broker.wait() == 3
    assert "took over, with generation 2" in broker.log
    again = start_broker(str(replica))
    assert [message.id for message in take(again.url, "q", 1)] == [1]


def test_a_broker_that_nobody_fenced_goes_on(
    start_broker: StartBroker, tmp_path: Path, config: str
) -> None:
    """Its replica is looked at many times meanwhile, and so is one that is not there."""
    primary = tmp_path / "primary"
    broker = start_broker(str(primary), "--config", config)
    replica_of(open_root(primary), tmp_path / "replica")
    replica_of(open_root(primary), tmp_path / "gone").path.rename(tmp_path / "moved")
    for number in range(30):
        send(broker.url, "q", Message(id=number, durable=True))
    assert broker.is_running
    assert broker.terminate() == 0
