"""Commands of AMQP 0-10 in one read that lie, wrap, are mixed or cut: none is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_shim.amqp_0_10.commands import (
    ExecutionSync,
    MessageAccept,
    MessageRelease,
    MessageTransfer,
    QueueDeclare,
    QueuePurge,
    QueueQuery,
    TxCommit,
    TxRollback,
    TxSelect,
)
from broker_shim.amqp_0_10.controls import SessionAttach, SessionAttached, SessionCommandPoint
from broker_shim.framing.assembly import Assembly, frames_of
from tests.support.amqp.amqp_0_10 import content
from tests.support.system.old_client import OldClient
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

COUNT, AT = 12, 7
WRAP, FAR = 1 << 32, (1 << 31) - 1
_SIZE = 2
"""Where a frame says how long it is."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    listen = "127.0.0.1:0"
    started = BrokerProcess("--memory", "--listen", listen, "--amqp-0-10=same")
    yield started
    assert started.terminate() == 0
    assert "Traceback" not in started.log


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[OldClient]:
    """A client of a queue that is empty."""
    with OldClient(broker.url) as it:
        it.do(QueueDeclare("q"))
        it.do(QueuePurge("q"))
        yield it


def frames(number: int, channel: int = 1, queue: str = "q") -> list[bytes]:
    """The frames of a message: method, header and body, which is its number."""
    assembly = Assembly(channel, MessageTransfer("", 1, 0), **content(queue, b"%4d" % number))
    return [frame.encoded for frame in frames_of(assembly)]


def whole(number: int, channel: int = 1) -> bytes:
    return b"".join(frames(number, channel))


def bodies(broker: BrokerProcess, queue: str = "q") -> list[int]:
    """The numbers that are on the queue, which is emptied.

    A message of its own comes after those of a client that is gone, which may be under way yet: the
    store completes in order.
    """
    with OldClient(broker.url, b"takes") as taker:
        taker.publish(queue, b"the last")
        taker.subscribe(queue)
        came = [taker.receive()]
        while came[-1].body != b"the last":
            came.append(taker.receive())
        taker.do(MessageAccept(tuple((message.number, message.number) for message in came)))
        assert taker.do(QueueQuery(queue)).message_count == 0
    return [int(message.body) for message in came[:-1]]


def resized(change: int) -> Callable[[bytes], bytes]:
    return lambda it: sized(int.from_bytes(it[2:4], "big") + change)(it)


def sized(size: int) -> Callable[[bytes], bytes]:
    return lambda it: it[:2] + size.to_bytes(2, "big") + it[4:]


LIES = {
    "nothing": sized(0),
    "less than a header": sized(11),
    "a header": sized(12),
    "less than there is": resized(-1),
    "some of the next": resized(3),
    "all of the next": resized(40),
    "more than there is": sized(0xFFFF),
}


@pytest.mark.parametrize("part", [0, 1, 2], ids=["method", "header", "body"])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_of_commands_of_which_one_lies_about_a_length_those_before_it_are_done(
    broker: BrokerProcess, client: OldClient, lie: Callable[[bytes], bytes], part: int
) -> None:
    run = [frames(number) for number in range(COUNT)]
    run[AT][part] = lie(run[AT][part])
    client.write(b"".join(map(b"".join, run)))
    client.end_writing()
    assert bodies(broker) == [*range(AT)]


def test_a_body_that_is_not_as_long_as_its_header_says_is_refused_and_says_so(
    client: OldClient,
) -> None:
    method, header, body = frames(0)
    client.write(method + header + sized(len(body) + len(method))(body) + method, 1)
    with pytest.raises(AssertionError, match="content-length is 4, and the body has 25 bytes"):
        client.do(ExecutionSync())


def test_commands_that_are_cut_at_any_byte_are_the_same_commands(
    broker: BrokerProcess, client: OldClient
) -> None:
    """The first piece begins with a question whose answer is awaited: it is a read by itself."""
    run, size = 3, len(whole(0))
    asked = b"".join(frame.encoded for frame in frames_of(Assembly(1, ExecutionSync(), sync=True)))
    cuts = range(1, run * size, 5)
    for cut in cuts:
        said = b"".join(map(whole, range(run * cut, run * cut + run)))
        answer = client.write(asked + said[:cut], 1)
        client.wait_for(answer)
        client.write(said[cut:], run)
    client.do(ExecutionSync())
    assert bodies(broker) == [
        number for cut in cuts for number in range(run * cut, run * cut + run)
    ]


def test_of_commands_that_end_at_any_byte_those_that_were_whole_are_done(
    broker: BrokerProcess, client: OldClient
) -> None:
    size, expected = len(whole(0)), list[int]()
    for cut in range(1, 3 * size, 7):
        run = range(3 * cut, 3 * cut + 3)
        with OldClient(broker.url, b"ends") as ending:
            ending.write(b"".join(map(whole, run))[:cut])
            ending.end_writing()
        expected += run[: cut // size]
    client.do(ExecutionSync())
    assert bodies(broker) == expected


def test_messages_of_two_sessions_may_come_frame_by_frame(
    broker: BrokerProcess, client: OldClient
) -> None:
    client.say(SessionAttach(b"second"), 2)
    client.say(SessionCommandPoint(0, 0), 2)
    client.wait_for_elsewhere(SessionAttached, 1)
    first = [part for number in range(COUNT) for part in frames(number)]
    second = [part for number in range(COUNT, 2 * COUNT) for part in frames(number, 2)]
    mixed = b"".join(part for pair in zip(first, second, strict=True) for part in pair)
    number = client.write(mixed, COUNT)
    client.do(ExecutionSync())
    client.wait_for(number)
    came = bodies(broker)
    assert [each for each in came if each < COUNT] == [*range(COUNT)]
    assert [each for each in came if each >= COUNT] == [*range(COUNT, 2 * COUNT)]


@pytest.mark.usefixtures("client")
def test_numbers_of_commands_that_wrap_are_those_of_their_messages(broker: BrokerProcess) -> None:
    with OldClient(broker.url, b"wraps") as wrapping:
        wrapping.number_from(FAR)  # no more ahead than that is ahead
        wrapping.number_from(WRAP - 5)
        last = wrapping.write(b"".join(map(whole, range(COUNT))), COUNT)
        assert last == COUNT - 6
        wrapping.wait_for(wrapping.say(ExecutionSync(), sync=True))
        wrapping.wait_for(last)
    assert bodies(broker) == [*range(COUNT)]


RANGES: dict[str, tuple[tuple[tuple[int, int], ...], ...]] = {
    "everything twice": (((0, 19),), ((0, 19),)),
    "halves in two commands that share some": (((0, 12),), ((7, 19),)),
    "far more than there is": (((0, FAR - 1),),),
    "nothing, then everything": ((), ((0, 19),)),
    "every second, then everything": (
        tuple((number, number) for number in range(0, 20, 2)),
        ((0, 19),),
    ),
}


WITHIN = pytest.mark.parametrize("within", [None, TxCommit(), TxRollback()])
"""Accepted alone, or in a transaction that ends so."""


@WITHIN
@pytest.mark.parametrize("commands", RANGES.values(), ids=RANGES)
def test_ranges_accept_what_they_name_once(
    broker: BrokerProcess,
    client: OldClient,
    commands: tuple[Any, ...],
    within: TxCommit | TxRollback | None,
) -> None:
    _accepts(client, commands, within)
    assert bodies(broker) == ([*range(20)] if isinstance(within, TxRollback) else [])


def test_what_a_rollback_gives_back_may_be_accepted_in_other_ranges(
    broker: BrokerProcess, client: OldClient
) -> None:
    _gets(client)
    client.do(TxSelect())
    client.do(MessageAccept(((2, 9), (12, 15))))
    client.do(MessageAccept(((0, 1),)))
    client.do(TxRollback())
    client.do(MessageAccept(tuple((number, number) for number in range(0, 20, 2))))
    client.do(TxCommit())
    _leaves(client)
    assert bodies(broker) == [*range(1, 20, 2)]


@WITHIN
def test_ranges_over_two_subscriptions_accept_each_message_on_its_queue(
    broker: BrokerProcess, client: OldClient, within: TxCommit | TxRollback | None
) -> None:
    client.do(QueueDeclare("r"))
    sent = [frames(number, queue="qr"[number // 3 % 2]) for number in range(24)]
    client.write(b"".join(map(b"".join, sent)), 24)
    client.subscribe("r", "second")
    client.subscribe("q")
    came = [client.receive() for _ in range(24)]
    assert [message.number for message in came] == [*range(24)]
    if within is not None:
        client.do(TxSelect())
    client.do(MessageAccept(((3, 20),)))
    if within is not None:
        client.do(within)
    _leaves(client)
    left = came if isinstance(within, TxRollback) else came[:3] + came[21:]
    assert bodies(broker) + bodies(broker, "r") == sorted(
        (int(message.body) for message in left), key=lambda number: (number // 3 % 2, number)
    )


NAMING_NOTHING: dict[str, tuple[tuple[tuple[int, int], ...], ...]] = {
    "numbers that were never used": (((20, 40), (FAR, FAR)),),
    "numbers from before them": (((WRAP - 9, WRAP - 1),),),
    "nothing": ((),),
}


@pytest.mark.parametrize("commands", NAMING_NOTHING.values(), ids=NAMING_NOTHING)
def test_ranges_of_nothing_accept_nothing(
    broker: BrokerProcess, client: OldClient, commands: tuple[Any, ...]
) -> None:
    _accepts(client, commands)
    assert bodies(broker) == [*range(20)]


@pytest.mark.parametrize(
    "ranges", [((0, 19), (0, 19)), ((0, 12), (7, 19)), ((10, 19), (0, 9)), ((5, 3),)]
)
def test_ranges_that_overlap_or_run_backwards_end_the_session_and_accept_nothing(
    broker: BrokerProcess, client: OldClient, ranges: tuple[tuple[int, int], ...]
) -> None:
    with pytest.raises(AssertionError, match="ranges of transfers that overlap or run backwards"):
        _accepts(client, (ranges,))
    assert bodies(broker) == [*range(20)]


def test_who_accepts_every_second_leaves_the_others(
    broker: BrokerProcess, client: OldClient
) -> None:
    _accepts(client, (tuple((number, number) for number in range(0, 20, 2)),))
    assert bodies(broker) == [*range(1, 20, 2)]


def _accepts(
    client: OldClient, commands: tuple[Any, ...], within: TxCommit | TxRollback | None = None
) -> None:
    """Twenty messages are sent and received, some are accepted in one read, and it hangs up."""
    _gets(client)
    if within is not None:
        client.say(TxSelect())
    for ranges in commands:
        client.say(MessageAccept(ranges))
    client.do(within or ExecutionSync())
    _leaves(client)


def _leaves(client: OldClient) -> None:
    """All that it was sent and still has waits again when it hangs up."""
    client.do(MessageRelease(((0, FAR - 1),)))
    client.end_writing()


def _gets(client: OldClient) -> None:
    """Twenty messages are sent and received."""
    client.write(b"".join(map(whole, range(20))), 20)
    client.subscribe("q")
    assert [client.receive().number for _ in range(20)] == [*range(20)]
