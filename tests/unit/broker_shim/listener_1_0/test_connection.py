"""One connection and its broker, frame by frame: what no client library does on purpose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import proton
import pytest

from broker_shim.amqp_1_0.composites import (
    Attach,
    Coordinator,
    Detach,
    End,
    Flow,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.completion import OnEachComplete
from broker_shim.protocol_1_0.codec.frames import encoded_frame
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.state_machine.call_values import EntryCall, ReleaseCall
from tests.support.amqp.bench import Bench
from tests.support.amqp.raw_client import WINDOW, Raw, flow, waiting


def transfers(found: list[Any]) -> list[Transfer]:
    return [each for each in found if isinstance(each, Transfer)]


@pytest.fixture
def bench() -> Iterator[Bench]:
    store = MemoryMessageStore()
    it = Bench(store)
    it.broker.ensure_queue("q", lambda _error: None)
    it.run()
    yield it
    it.ours.lost()
    it.run()
    store.close()


def test_a_message_larger_than_a_peer_takes_goes_to_another(bench: Bench) -> None:
    client = Raw(bench)
    client.receiver(5, max_message_size=1_000)
    bench.publish(1, 2_000)
    bench.publish(1, 10)
    small = transfers(client.read())
    assert len(small) == 1
    assert waiting(bench) == 1
    client.receiver(5, handle=1)
    assert [each.handle for each in transfers(client.read())] == [1]


def test_a_browser_is_not_shown_what_is_larger_than_it_takes(bench: Bench) -> None:
    client = Raw(bench)
    bench.publish(1, 2_000)
    bench.publish(1, 10)
    source = Source("q", distribution_mode="copy")
    client.receiver(5, source=source, max_message_size=1_000)
    assert len(transfers(client.read())) == 1
    assert waiting(bench) == 2


@pytest.mark.parametrize("mode", SenderSettleMode)
def test_a_message_that_failed_says_so_to_whoever_gets_it(
    bench: Bench, mode: SenderSettleMode
) -> None:
    """Also where it is off its queue before it is sent."""
    bench.publish(1, 10)
    bench.broker.acquisition.acquire("q", 1, "another", lambda _error: None)
    bench.run()
    bench.broker.settlement.give_back((1,), "q", "another", failed=True)
    bench.run()
    link = bench.receiver(credit=1, snd_settle_mode=int(mode))
    bench.exchange()
    message = proton.Message()
    message.decode(link.recv(link.current.pending))
    assert (message.delivery_count, message.first_acquirer) == (1, False)


@pytest.mark.parametrize("mode", SenderSettleMode)
def test_credit_that_is_taken_back_meanwhile_loses_and_holds_nothing(
    bench: Bench, mode: SenderSettleMode
) -> None:
    client = Raw(bench)
    client.receiver(0, snd_settle_mode=mode)
    bench.publish(1, 10)
    bench.ours.receive(encoded_frame(flow(0, 1)))
    bench.broker.dispatch()  # it is on its way to be acquired, or taken off its queue
    bench.ours.receive(encoded_frame(flow(0, 0)))
    bench.run()
    assert transfers(client.read()) == []
    client.send(flow(0, 1))
    (transfer,) = transfers(client.read())
    assert transfer.settled is (mode is SenderSettleMode.SETTLED)


def test_credit_that_is_taken_back_and_given_again_changes_no_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes back is not overtaken by what came after it (python-proton does this)."""
    client = Raw(bench)
    client.receiver(0)
    bench.publish(6, 10)
    bench.ours.receive(encoded_frame(flow(0, 4)))
    bench.broker.dispatch()  # four are on their way to be acquired
    bench.ours.receive(encoded_frame(flow(0, 1)))
    make, releases = bench.calls.make_each, list[Callable[[], None]]()

    def put_off(call: EntryCall, on_done: OnEachComplete) -> None:
        if isinstance(call, ReleaseCall):
            releases.append(partial(make, call, on_done))
        else:
            make(call, on_done)

    monkeypatch.setattr(bench.calls, "make_each", put_off)
    bench.run()  # one is sent, three go back
    assert len(releases) == 1
    client.send(Flow(0, WINDOW, 0, WINDOW, 0, 1, 9))
    for each in releases:
        each()
    bench.run()
    tags = [each.delivery_tag for each in transfers(client.read())]
    assert len(tags) == 6
    assert tags == sorted(tags)


def test_what_is_still_being_acquired_does_not_overtake_what_goes_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, make = Raw(bench), bench.calls.make_each
    put_off = defaultdict[str, list[Callable[[], None]]](list)

    def go_on(operation: str, count: int) -> None:
        for _ in range(count):
            put_off[operation].pop(0)()
        bench.run()

    client.receiver(0)
    bench.publish(6, 10)
    monkeypatch.setattr(
        bench.calls,
        "make_each",
        lambda call, *rest: put_off[call.operation].append(partial(make, call, *rest)),
    )
    client.send(flow(0, 1))
    client.send(flow(0, 4))
    client.send(flow(0, 0))
    go_on("acquire", 1)  # the first goes back
    client.send(flow(0, 9))
    go_on("acquire", 1)  # the other three
    assert transfers(client.read()) == []
    go_on("release", 2)
    go_on("acquire", 1)
    tags = [each.delivery_tag for each in transfers(client.read())]
    assert len(tags) == 6
    assert tags == sorted(tags)


def test_what_began_and_ended_in_the_same_bytes_is_answered_in_order(bench: Bench) -> None:
    client = Raw(bench)
    client.read()
    attach = Attach("l", 0, True, source=Source("q"), target=Target("t"))
    client.send(attach, Detach(0, closed=True), End())
    assert [type(each) for each in client.read()] == [End]
    assert not bench.ours.is_over


def test_an_answer_that_does_not_fit_the_frames_of_a_peer_refuses_the_link(bench: Bench) -> None:
    client = Raw(bench, max_frame_size=512)
    client.read()
    filters = {"jms-selector": "a = '" + "x" * 600 + "'"}
    client.send(Attach("l", 0, True, source=Source("q", filter=filters), target=Target("t")))
    answer, detach = client.read()
    assert answer.source is None
    assert detach.error.condition == "amqp:invalid-field"
    assert bench.broker.queues["q"].consumer_count == 0


def test_a_reason_is_cut_to_the_least_frame(bench: Bench) -> None:
    client = Raw(bench, max_frame_size=512)
    client.read()
    client.send(
        Attach("l", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0)
    )
    client.read()
    payload = b"\x00\x53\x77" + b"\x00" * 3_000  # a value with endless descriptors
    bench.ours.receive(_transfer(payload))
    bench.run()
    (disposition,) = client.read()
    assert disposition.state.error.condition == "amqp:decode-error"


def test_a_coordinator_is_answered(bench: Bench) -> None:
    client = Raw(bench)
    client.read()
    coordinator = Coordinator()
    client.send(
        Attach("l", 0, False, source=Source(), target=coordinator, initial_delivery_count=0)
    )
    assert isinstance(client.read()[0], Attach)


def _transfer(payload: bytes) -> bytes:
    frame = encoded_frame(Transfer(0, 0, b"t", 0, settled=False, more=False))
    size = len(frame) + len(payload)
    return size.to_bytes(4, "big") + frame[4:] + payload
