"""Selectors, groups, exclusive and last-value queues: what clients see of them, no socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import proton
import pytest

from broker_shim.broker.flow import header_scan
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import nobody
from broker_shim.errors import CorruptData, StoreError, Unavailable
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.selectors import Selector
from broker_shim.selectors import parse as parse_selector
from broker_shim.serve.broker_recovery import recover
from broker_shim.store.interface import BrokerStore, Exchange, Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.records import Kind
from sparkstore.core.state_machine.call_values import CreateCall
from sparkstore.operations.bulk import MessageDraft
from tests.support.amqp.bench import Bench, Unreadable
from tests.support.stores.stores import RecordedMessageStore, read

CLIENTS: list[Client] = []
SELECTOR = "apache.org:selector-filter:string"


class Client(Bench):
    """A broker with a queue q, and a client that sends and receives."""

    def __init__(self, store: BrokerStore, **arguments: Any) -> None:
        super().__init__(store)
        self.broker.create_queue(Queue("q", arguments=arguments), lambda _error: None)
        self.calls.make(CreateCall(Exchange("amq.fanout", "fanout")), nobody)
        self.broker.router.add_exchange(Exchange("amq.fanout", "fanout"))
        self.run()
        self._links = 0
        CLIENTS.append(self)

    @property
    def queue(self) -> QueueDispatch:
        return self.broker.queues["q"]

    def put(self, *messages: proton.Message, address: str = "q") -> list[StoreError | None]:
        answers: list[StoreError | None] = []
        for message in messages:
            header, body = parse(bytes(message.encode()), now_us=self.ours.now_us())
            node = self.broker.destinations.node_of(address)
            queues = self.broker.queues_for(node, header)
            self.broker.publish(header, body, queues, answers.append)
        self.run()
        return answers

    def attach(
        self, selector: str | None = None, *, address: str = "q", credit: int = 0, **more: Any
    ) -> Any:
        self._links += 1
        link = self.session.receiver(f"r{self._links}")
        link.source.address = address
        link.source.distribution_mode = more.get("mode", 0)
        for key, value in more.get("filters", {}).items():
            fill(link.source.filter, key, value)
        if selector is not None:
            fill(link.source.filter, "it", described(proton.symbol(SELECTOR), selector))
        link.open()
        link.flow(credit)
        self.settle()
        return link

    def settle(self) -> None:
        """Until nothing moves any more; what was put off is done, too."""
        for _ in range(50):
            self.exchange()
            self.run_delayed()
        self.exchange()


def described(descriptor: Any, value: Any) -> proton.Described:
    return proton.Described(descriptor, value)


def fill(data: proton.Data, key: str, value: Any) -> None:
    data.put_map()
    data.enter()
    data.put_symbol(proton.symbol(key))
    data.put_object(value)
    data.exit()


def ids(link: Any) -> list[Any]:
    """Ids of what has come, in order; each is left unsettled."""
    found = []
    while link.current is not None and link.current.readable and not link.current.partial:
        message = proton.Message()
        message.decode(link.recv(link.current.pending))
        found.append(message.id)
        link.advance()
    return found


def refusal(link: Any) -> tuple[str, str]:
    assert link.remote_condition is not None
    return link.remote_condition.name, link.remote_condition.description


def numbered(count: int, **properties: Sequence[Any]) -> list[proton.Message]:
    """Messages 1 to count; each property takes its values in turn."""
    return [
        proton.Message(
            id=number,
            properties={name: each[number % len(each)] for name, each in properties.items()},
        )
        for number in range(1, count + 1)
    ]


@pytest.fixture
def store() -> Iterator[MemoryMessageStore]:
    it = MemoryMessageStore()
    yield it
    it.close()


@pytest.fixture(autouse=True)
def links_end(store: MemoryMessageStore) -> Iterator[None]:
    """What consumers hold is given back at the end of each test, while its store is still open."""
    yield
    while CLIENTS:
        client = CLIENTS.pop()
        client.ours.lost()
        client.run()


@pytest.fixture
def client(store: MemoryMessageStore) -> Client:
    return Client(store)


def test_a_consumer_gets_what_its_selector_fits_and_the_rest_waits(client: Client) -> None:
    client.put(*numbered(6, colour=["red", "blue"]))
    assert ids(client.attach("colour = 'red'", credit=9)) == [2, 4, 6]
    assert ids(client.attach(credit=9)) == [1, 3, 5]


def test_what_comes_later_is_selected_too(client: Client) -> None:
    link = client.attach("n > 2", credit=9)
    client.put(*numbered(4, n=[0, 1, 2, 3, 4]))
    client.settle()
    assert ids(link) == [3, 4]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("jms-selector", described(proton.ulong(0x0000468C00000004), "colour = 'red'")),
        ("any", described(proton.symbol(SELECTOR), "colour = 'red'")),
        ("jms-selector", "colour = 'red'"),
        (SELECTOR, "colour = 'red'"),
    ],
    ids=["as Qpid JMS says it", "by descriptor symbol", "plain", "plain by its long name"],
)
def test_each_way_to_say_a_selector_is_honoured_and_echoed(
    client: Client, key: str, value: Any
) -> None:
    client.put(*numbered(4, colour=["red", "blue"]))
    link = client.attach(credit=9, filters={key: value})
    assert ids(link) == [2, 4]
    link.remote_source.filter.rewind()
    link.remote_source.filter.next()
    assert link.remote_source.filter.get_object() == {proton.symbol(key): value}


def test_an_unknown_filter_is_left_out_of_the_answer_and_does_not_filter(client: Client) -> None:
    client.put(*numbered(2))
    unknown = described(proton.symbol("example:other-filter"), "colour = 'red'")
    link = client.attach(credit=9, filters={"x": unknown})
    assert ids(link) == [1, 2]
    link.remote_source.filter.rewind()
    assert link.remote_source.filter.next() is None


def test_a_selector_with_a_syntax_error_is_refused_with_the_place(client: Client) -> None:
    assert refusal(client.attach("colour = ")) == (
        "amqp:invalid-field",
        "selector: it ends too early, after character 9",
    )
    assert refusal(client.attach("colour = 'red' !")) == (
        "amqp:invalid-field",
        "selector: an unexpected '!' at character 16",
    )


def test_a_given_back_message_is_looked_at_again_in_its_old_place(client: Client) -> None:
    client.put(*numbered(5, colour=["red"]))
    one = client.attach("colour = 'red'", credit=2)
    other = client.attach("colour = 'red'")
    assert ids(one) == [1, 2]
    one.close()
    client.settle()
    other.flow(9)
    client.settle()
    assert ids(other) == [1, 2, 3, 4, 5]


def test_higher_priority_is_selected_first_and_overtakes_what_was_found(client: Client) -> None:
    for number, priority in enumerate((1, 4, 9, 4), start=1):
        client.put(proton.Message(id=number, priority=priority, properties={"n": number}))
    link = client.attach("n > 0", credit=1)
    client.put(proton.Message(id=5, priority=8, properties={"n": 5}))
    link.flow(9)
    client.settle()
    assert ids(link) == [3, 5, 2, 4, 1]


def test_what_was_found_is_not_held_up_by_what_has_gone_before_it(client: Client) -> None:
    client.put(*numbered(3, n=[1]))
    link = client.attach("n = 1", credit=1)
    client.put(proton.Message(id=4, priority=9))
    (urgent,) = client.queue.withdraw([4]).held
    client.queue.removed([urgent])
    link.flow(5)
    client.settle()
    assert ids(link) == [1, 2, 3]


def test_two_selecting_consumers_take_turns(client: Client) -> None:
    links = [client.attach("n >= 0") for _ in range(2)]
    for link in links:
        link.flow(4)
    client.put(*numbered(8, n=[1]))
    client.settle()
    got = [ids(link) for link in links]
    assert sorted(got[0] + got[1]) == list(range(1, 9))
    assert [len(each) for each in got] == [4, 4]


def test_a_drain_is_answered_when_all_was_looked_at(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_scan, "FIRST", 1)
    monkeypatch.setattr(header_scan, "MOST", 3)
    client.put(*numbered(300, n=range(300)))
    link = client.attach("n = 299")
    link.drain(5)
    client.settle()
    assert ids(link) == [299]
    assert link.credit == 0


@pytest.mark.parametrize(("second", "most"), [(1.0, 1), (0.0, header_scan.MOST)])
def test_batches_are_as_large_as_the_time_for_one_allows(
    client: Client, monkeypatch: pytest.MonkeyPatch, second: float, most: int
) -> None:
    sizes: list[int] = []
    ask = client.calls.read_headers

    def noted(message_ids: Sequence[int], on_read: Any) -> None:
        sizes.append(len(message_ids))
        ask(message_ids, on_read)

    times = count(0.0, second)
    monkeypatch.setattr(header_scan.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(client.calls, "read_headers", noted)
    client.put(*numbered(4_000, n=range(4_000)))
    assert ids(client.attach("n = 3999", credit=2)) == [3_999]
    assert sum(sizes) == 4_000
    assert sizes[0] == header_scan.FIRST
    assert max(sizes[-2:-1]) == most


def test_a_batch_is_judged_in_slices_whatever_the_selector_and_the_headers_cost(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, slices = list[int](), list[int]()
    fits, judge = Selector.fits, QueueDispatch.judge

    def in_slice(*arguments: Any) -> Any:
        before = len(judged)
        rest = judge(*arguments)
        slices.append(len(judged) - before)
        return rest

    monkeypatch.setattr(Selector, "fits", lambda self, get: judged.append(1) or fits(self, get))
    monkeypatch.setattr(QueueDispatch, "judge", in_slice)
    client.put(*numbered(40, n=range(40)))
    costly = " OR ".join(["s LIKE '%" + "a" * 60 + "%'"] * 16)
    most = header_scan.SLICE_STEPS // parse_selector(costly).steps + 1
    link = client.attach(f"n >= 38 OR {costly}", credit=5)
    client.settle()
    assert ids(link) == [38, 39]
    assert sum(slices) == 40
    assert max(slices) <= most


def test_each_message_is_looked_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    ask = client.calls.read_headers

    def noted(message_ids: Sequence[int], on_read: Any) -> None:
        looked.extend(message_ids)
        ask(message_ids, on_read)

    monkeypatch.setattr(client.calls, "read_headers", noted)
    client.put(*numbered(500, n=range(500)))
    link = client.attach("n = 7", credit=5)
    client.put(*numbered(3, n=[7]))
    client.settle()
    link.flow(5)
    client.settle()
    assert sorted(looked) == list(range(1, 504))


def test_a_message_that_cannot_be_read_does_not_hide_the_others() -> None:
    store = Unreadable()
    client = Client(store)
    client.put(*numbered(3, n=[1]))
    store.errors[2] = CorruptData("gone bad")
    assert ids(client.attach("n = 1", credit=9)) == [1, 3]
    store.close()


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    store = Unreadable()
    client = Client(store)
    client.put(*numbered(3, n=[1]))
    store.errors[2] = Unavailable("not now")
    link = client.session.receiver("r")
    link.source.address = "q"
    fill(link.source.filter, "x", described(proton.symbol(SELECTOR), "n = 1"))
    link.open()
    link.flow(9)
    client.exchange()
    assert ids(link) == []
    store.errors.clear()
    client.settle()
    assert ids(link) == [1, 2, 3]
    store.close()


def test_a_subscription_gets_what_its_selector_fits(client: Client) -> None:
    link = client.attach("colour = 'red'", address="amq.fanout", credit=9)
    assert client.put(*numbered(4, colour=["red", "blue"]), address="amq.fanout") == [None] * 4
    client.settle()
    assert ids(link) == [2, 4]
    (queue,) = [name for name in client.broker.queues if name != "q"]
    assert len(client.broker.queues[queue]) == 2


def test_a_browser_sees_what_its_selector_fits_in_the_order_of_priorities(client: Client) -> None:
    for number, priority in enumerate((4, 9, 4, 0), start=1):
        client.put(proton.Message(id=number, priority=priority, properties={"n": number}))
    mode = proton.Terminus.DIST_MODE_COPY
    assert ids(client.attach(mode=mode, credit=9)) == [2, 1, 3, 4]
    assert ids(client.attach("n <> 1", mode=mode, credit=9)) == [2, 3, 4]
    assert len(client.queue) == 4


def test_a_browser_is_drained_when_it_has_seen_everything(client: Client) -> None:
    client.put(*numbered(500, n=range(500)))
    link = client.attach("n >= 250", mode=proton.Terminus.DIST_MODE_COPY)
    link.drain(1_000)
    client.settle()
    assert ids(link) == list(range(250, 500))
    assert link.credit == 0


def test_an_exclusive_queue_takes_one_consumer_at_a_time(store: MemoryMessageStore) -> None:
    client = Client(store, exclusive=True)
    client.put(*numbered(2))
    first = client.attach(credit=1)
    condition, text = refusal(client.attach(credit=1))
    assert condition == "amqp:resource-locked"
    assert "'q' is exclusive" in text
    assert ids(client.attach(mode=proton.Terminus.DIST_MODE_COPY, credit=9)) == [2]
    first.close()
    client.settle()
    assert ids(client.attach(credit=9)) == [1, 2]


def grouped(number: int, group: str | None) -> proton.Message:
    return proton.Message(id=number, group_id=group)


def test_a_group_goes_to_one_consumer_in_order(store: MemoryMessageStore) -> None:
    client = Client(store, message_groups=True)
    one, two = client.attach(), client.attach()
    for link in (one, two):
        link.flow(100)
    client.settle()
    client.put(*(grouped(number, "abcdef"[number % 6]) for number in range(60)))
    client.settle()
    got = [ids(one), ids(two)]
    assert sorted(got[0] + got[1]) == list(range(60))
    assert all(got)
    assert {n % 6 for n in got[0]}.isdisjoint({n % 6 for n in got[1]})
    assert all(each == sorted(each) for each in got)


def test_a_group_waits_for_its_consumer_and_others_go_on(store: MemoryMessageStore) -> None:
    client = Client(store, message_groups=True)
    client.put(grouped(1, "a"), grouped(2, "a"), grouped(3, "b"), grouped(4, None))
    one = client.attach(credit=1)
    assert ids(one) == [1]
    two = client.attach(credit=9)
    assert ids(two) == [3, 4]
    one.flow(9)
    client.settle()
    assert ids(one) == [2]


def test_a_group_is_free_when_its_consumer_is_gone_and_all_it_held_is_back(
    store: MemoryMessageStore,
) -> None:
    client = Client(store, message_groups=True)
    client.put(*(grouped(number, "a") for number in range(1, 6)))
    one = client.attach(credit=2)
    assert ids(one) == [1, 2]
    two = client.attach(credit=9)
    assert ids(two) == []
    one.close()
    client.settle()
    assert ids(two) == [1, 2, 3, 4, 5]


@pytest.fixture
def recorded() -> Iterator[RecordedMessageStore]:
    it = RecordedMessageStore([])
    yield it
    it.close()


def valued(number: int, key: str | None) -> proton.Message:
    return proton.Message(id=number, durable=True, properties={} if key is None else {"k": key})


def transactions(store: RecordedMessageStore) -> list[tuple[Kind, int | None, int | None]]:
    kinds = (Kind.ENQUEUED, Kind.DEQUEUED)
    found = [each for each in read(store.sink.log) if each.kind in kinds]
    return [(each.kind, each.message_id, each.transaction) for each in found]


def test_the_last_value_replaces_the_one_before_in_one_transaction(
    recorded: RecordedMessageStore,
) -> None:
    client = Client(recorded, last_value_key="k")
    client.put(valued(1, "a"), valued(2, "b"))
    client.put(valued(3, "a"))
    assert ids(client.attach(mode=proton.Terminus.DIST_MODE_COPY, credit=9)) == [2, 3]
    *_, taken, put = transactions(recorded)
    assert (put[:2], taken[:2]) == ((Kind.ENQUEUED, 3), (Kind.DEQUEUED, 1))
    assert put[2] == taken[2] is not None


def test_many_values_of_one_key_at_once_leave_the_last(recorded: RecordedMessageStore) -> None:
    client = Client(recorded, last_value_key="k")
    assert client.put(*(valued(number, "a") for number in range(20))) == [None] * 20
    assert ids(client.attach(credit=9)) == [19]
    assert client.broker.metrics.replaced == 19


def test_a_message_without_the_key_replaces_nothing(recorded: RecordedMessageStore) -> None:
    client = Client(recorded, last_value_key="k")
    client.put(*(valued(number, None) for number in range(3)))
    assert ids(client.attach(credit=9)) == [0, 1, 2]


def test_what_a_consumer_holds_is_not_replaced_and_goes_when_it_is_given_back(
    recorded: RecordedMessageStore,
) -> None:
    client = Client(recorded, last_value_key="k")
    client.put(valued(1, "a"))
    link = client.attach(credit=1)
    assert ids(link) == [1]
    client.put(valued(2, "a"))
    assert len(client.queue) == 2
    link.close()
    client.settle()
    assert ids(client.attach(credit=9)) == [2]
    assert len(client.queue) == 1


def test_a_refused_replacement_leaves_the_older_one_waiting(
    recorded: RecordedMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(recorded, last_value_key="k")
    client.put(valued(1, "a"))

    def refused(transaction: Any, on_complete: Any) -> None:
        recorded.abort(transaction, lambda _error: on_complete(Unavailable("no room")))

    monkeypatch.setattr(recorded, "commit", refused)
    (error,) = client.put(valued(2, "a"))
    assert isinstance(error, Unavailable)
    monkeypatch.undo()
    client.put(valued(3, "b"))
    assert ids(client.attach(credit=9)) == [1, 3]


def test_what_a_bulk_operation_puts_there_replaces_too(recorded: RecordedMessageStore) -> None:
    client = Client(recorded, last_value_key="k")
    client.put(valued(1, "a"), valued(2, "b"))
    parsed = [parse(bytes(valued(number, "a").encode()), now_us=0) for number in (3, 4)]
    client.broker.bulk.put("q", [MessageDraft(*each) for each in parsed], lambda *_answer: None)
    client.run()
    assert ids(client.attach(credit=9)) == [2, 4]


def test_after_a_restart_what_was_held_and_has_a_newer_value_is_gone(
    recorded: RecordedMessageStore,
) -> None:
    client = Client(recorded, last_value_key="k")
    client.put(valued(1, "a"), valued(2, "b"))
    assert ids(client.attach(credit=1)) == [1]
    client.put(valued(3, "a"), valued(4, "b"))
    again = Client.__new__(Client)
    Bench.__init__(again, recorded)
    again._links = 0
    CLIENTS.append(again)
    recover(recorded, again.host)
    again.run()
    assert ids(again.attach(credit=9)) == [3, 4]
    again.put(valued(5, "a"))
    assert len(again.queue) == 3


def test_a_restart_reads_no_header_of_queues_that_do_not_ask_for_it() -> None:
    store = Unreadable()
    client = Client(store)
    client.put(*numbered(3, n=[1]))
    store.errors = {number: CorruptData("never read") for number in (1, 2, 3)}
    bench = Bench(store)
    recover(store, bench.host)
    assert len(bench.broker.queues["q"]) == 3
    store.close()
