"""A root that is put back from a backup while its brokers live: they end, and say why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from proton import Message

from broker_shim.store.interface import Queue
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.roots.logs import until
from tests.support.stores.services import ServiceProcess, short_folder
from tests.support.stores.stores import done
from tests.support.system import brokerj
from tests.support.system.clients import send, take
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]


def messages(count: int) -> list[Message]:
    return [Message(id=number, durable=True, body="x") for number in range(count)]


def test_a_member_ends_when_its_root_is_put_back(tmp_path: Path) -> None:
    root, backup = tmp_path / "root", tmp_path / "backup"
    with short_folder() as folder:
        service = ServiceProcess(root, folder / "s")
        service.start()
        store = RemoteMessageStore(service.path)
        done(store.create, Queue("q"))
        store.close()
        service.stop()
        shutil.copytree(root, backup)
        service.start()
        arguments = (f"--store=unix:{service.path}", "--member=one", "--listen=127.0.0.1:0")
        broker = BrokerProcess(*arguments)
        send(broker.url, "q", *messages(3))
        service.kill()
        shutil.rmtree(root)
        shutil.copytree(backup, root)
        service.start()
        assert broker.wait() == 1
        assert "stopped: Fenced: this broker has seen record" in broker.log
        again = BrokerProcess(*arguments)
        send(again.url, "q", *messages(1))
        assert [message.id for message in take(again.url, "q", 1)] == [0]
        assert again.terminate() == 0
        assert service.stop() == 0
        assert "'one' is sent away: Fenced" in service.log()
        service.close()


def test_broker_j_ends_its_host_when_its_root_is_put_back(
    host: brokerj.Setup, tmp_path: Path
) -> None:
    """It would hand out from memory what the root does not have."""
    send(host.broker.url, "auto.q", *messages(2))
    host.service.kill()
    backed_up = shutil.copytree(
        host.root, tmp_path / "backup", ignore=shutil.ignore_patterns("*.sock")
    )
    host.start_service()
    send(host.broker.url, "auto.q", *messages(5))
    host.service.kill()
    shutil.rmtree(host.root)
    shutil.copytree(backed_up, host.root)
    host.start_service()
    until(lambda: "sent this broker away for good: Fenced: this broker has seen" in host.broker.log)
    until(lambda: "'brokerj' is sent away: Fenced" in host.service.log)
    host.broker.kill()
    host.start_broker()
    assert [message.id for message in take(host.broker.url, "auto.q", 2)] == [0, 1]
