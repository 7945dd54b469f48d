"""The control socket of a store without room: who asks is answered, who orders is told why not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.serve.administration import order_turns
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from sparkstore.control import http_client
from sparkstore.control.broker_control import BrokerControl
from sparkstore.control.client import connect
from sparkstore.core.records import MessageHeader
from sparkstore.errors import Full, NotNow, Unavailable
from sparkstore.log import committer
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Action, Answer, MessageDraft, Request
from sparkstore.tables.root import open_root
from tests.support.roots.logs import until
from tests.support.roots.storage import Storage
from tests.support.stores.controls import ServedRoot, ServicedRoot
from tests.support.stores.full import SMALL, is_full
from tests.support.stores.stores import DELTA_CONFIG, done

pytestmark = pytest.mark.system

DRAFT = MessageDraft(MessageHeader("raw", b"h"), bytes(50_000))
CREATE = Order(AdminAction.CREATE_QUEUE, "late")


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    monkeypatch.setattr(committer, "_LONGEST_RETRY_S", 0.05)
    monkeypatch.setattr(order_turns, "_LOOK_S", 0.05)
    monkeypatch.setattr(http_client, "ANSWER_S", 20.0)
    return Storage(monkeypatch)


@pytest.fixture(params=["broker", "service"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServedRoot | ServicedRoot]:
    root = tmp_path / "root"
    store = DeltaMessageStore(root, DELTA_CONFIG)
    done(store.create, Queue("q"))
    store.close()
    if request.param == "broker":
        served: ServedRoot | ServicedRoot = ServedRoot(root, config=SMALL)
    else:
        served = ServicedRoot(root, config=SMALL)
    yield served
    served.stop()


def connected(there: ServedRoot | ServicedRoot) -> closing[BrokerControl]:
    found = connect(open_root(there.store.root.path))
    assert found is not None
    return closing(found)


def put_until_refused(control: BrokerControl) -> tuple[int, str]:
    for count in range(1000):
        try:
            control.put("q", [DRAFT])
        except NotNow as refusal:
            return count, str(refusal)
    raise AssertionError("never refused")


def test_without_room_reads_are_answered_and_orders_told_why_they_cannot_be_done(
    there: ServedRoot | ServicedRoot, storage: Storage
) -> None:
    with connected(there) as control, connected(there) as other:
        storage.is_down = True
        put, refusal = put_until_refused(control)
        assert "no room in the write-ahead log" in refusal
        assert "may be done later" in refusal
        with pytest.raises(Full, match=r"no room .* retry later; nothing was done"):
            other.order(CREATE)
        with pytest.raises(Full, match="nothing was done"):
            other.purge("q", lambda _so_far: None)
        with pytest.raises(Full, match="nothing was done"):
            control.run(Request(Action.PURGE, "q", (1,)))
        for asking in (control, other):
            assert not any(asking.connections())
            assert asking.not_durable() == {}
            assert asking.holders(10).shown == []
        storage.is_down = False
        until(lambda: not is_full(there.store))
        assert other.order(CREATE)["changed"]
        assert control.purge("q", lambda _so_far: None) == Answer(done=put + 1)


def test_a_broker_that_does_not_come_round_is_given_up_with_a_sentence(
    there: ServedRoot | ServicedRoot, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "READ_S", 0.05)
    told = r"has not answered for 0\.05 s: look into its log"
    with connected(there) as control, there.store.look(), pytest.raises(Unavailable, match=told):
        control.holders(10)
