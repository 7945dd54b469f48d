"""Runs of transfers that lie, wrap, are mixed or cut, over a socket: nothing is lost or doubled.

Each test writes a run of frames in one piece, as one read of the broker brings it, and holds what
is on the queues then against what was whole and right in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Released,
    Source,
    Target,
    Transfer,
)
from broker_shim.protocol_1_0.codec.frames import encoded_frame, transfer_frame
from broker_shim.protocol_1_0.serial import WRAP, distance, plus
from tests.support.amqp.amqp_1_0 import attach, flow
from tests.support.system.processes import BrokerProcess
from tests.support.system.raw_peer import Bystander, RawPeer, condition

pytestmark = [pytest.mark.system, pytest.mark.slow]

FRAMING, DECODE = "amqp:connection:framing-error", "amqp:decode-error"
COUNT, AT = 12, 7
FAR = (1 << 31) - 1
EMPTY_FRAME = bytes((0, 0, 0, 8, 2, 0, 0, 0))
_LIST_SIZE, _LIST_COUNT, _TAG_SIZE = 12, 13, 25
"""Where a transfer of six fields says so, in its frame."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    started = BrokerProcess("--memory", "--listen", "127.0.0.1:0")
    yield started
    assert started.terminate() == 0
    assert "Traceback" not in started.log


@pytest.fixture(scope="module")
def bystanders(broker: BrokerProcess) -> Iterator[Bystander]:
    bystander = Bystander(broker)
    yield bystander
    bystander.end()


@pytest.fixture(autouse=True)
def nobody_else_notices(bystanders: Bystander) -> Iterator[None]:
    """A client that was there before goes on meanwhile, and after."""
    yield
    bystanders.wait_for_a_round()


def frame(number: int, body: object = None, *, handle: int = 0, settled: bool = False) -> bytes:
    """A whole delivery, whose body is its number unless that is said."""
    text = f"{number if body is None else body:>10}".encode()
    payload = b"\x00\x53\x75\xa0" + bytes([len(text)]) + text
    its = Transfer(handle, number % WRAP, b"%10d" % number, 0, settled)
    return transfer_frame(0, its, len(payload)) + payload


def bodies(broker: BrokerProcess, *queues: str) -> list[list[str]]:
    """The bodies of all that is on each queue, which is taken."""
    with RawPeer(broker) as peer:
        # What an ended session brought is on a queue once one that came later is accepted.
        peer.opened().begun().sending("later").write(frame(0))
        answered(peer, 1)
    with RawPeer(broker) as peer:
        peer.opened()
        peer.say(Begin(next_outgoing_id=0, incoming_window=FAR, outgoing_window=0))
        return [_drained(peer, handle, queue) for handle, queue in enumerate(queues)]


def _drained(peer: RawPeer, handle: int, queue: str) -> list[str]:
    peer.say(
        attach(handle, is_receiver=True, source=Source(queue), target=Target("t")),
        flow(handle, 10_000, incoming_window=FAR, drain=True),
    )
    came: list[str] = []
    while not isinstance(said := peer.next(), Flow) or said.link_credit != 0:
        if isinstance(said, Transfer):
            came.append(peer.payload[-10:].decode().strip())
    peer.say(Disposition(True, 0, FAR, settled=True, state=Accepted()), Detach(handle, closed=True))
    peer.until(Detach)
    return came


def numbers(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def answered(peer: RawPeer, count: int) -> list[int]:
    """The ids of the next deliveries that the broker accepted, in the order in which it says so."""
    ids: list[int] = []
    while len(ids) < count:
        said = peer.until(Disposition)
        assert said.role
        assert isinstance(said.state, Accepted)
        last = said.first if said.last is None else said.last
        ids += [plus(said.first, offset) for offset in range(distance(said.first, last) + 1)]
    return ids


# ------------------------------------------------------------------------------------- lengths


def changed(at: int, byte: int) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:at] + bytes([byte]) + whole[at + 1 :]


def resized(change: int) -> Callable[[bytes], bytes]:
    return lambda whole: (len(whole) + change).to_bytes(4, "big") + whole[4:]


def sized(size: int) -> Callable[[bytes], bytes]:
    return lambda whole: size.to_bytes(4, "big") + whole[4:]


LIES = {
    "a frame of nothing": (sized(0), FRAMING),
    "a frame shorter than its header": (sized(7), FRAMING),
    "a frame of 4 GiB": (sized(0xFFFF_FFFF), FRAMING),
    "a frame without its last bytes": (resized(-3), FRAMING),
    "a frame with the first bytes of the next": (resized(3), FRAMING),
    "a frame that ends in its performative": (sized(20), DECODE),
    "a header that is all of the frame": (changed(4, 255), FRAMING),
    "a header with the first bytes of the performative": (changed(4, 3), DECODE),
    "a list that ends in its last field": (changed(_LIST_SIZE, 20), DECODE),
    "a list longer than its frame": (changed(_LIST_SIZE, 255), DECODE),
    "more fields than the list has": (changed(_LIST_COUNT, 12), DECODE),
    "fewer fields than the list has": (changed(_LIST_COUNT, 4), DECODE),
    "a tag longer than the list": (changed(_TAG_SIZE, 200), DECODE),
    "a tag with the first byte of the next field": (changed(_TAG_SIZE, 11), DECODE),
    "a tag without its last byte": (changed(_TAG_SIZE, 9), DECODE),
}


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(("lie", "expected"), LIES.values(), ids=LIES)
def test_of_a_run_whose_frame_lies_about_a_length_what_came_before_it_is_taken(
    broker: BrokerProcess, lie: Callable[[bytes], bytes], expected: str, settled: bool
) -> None:
    frames = [frame(number, settled=settled) for number in range(COUNT)]
    frames[AT] = lie(frames[AT])
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("lies")
        peer.write(b"".join(frames))
        assert condition(peer.until(Close)) == expected
        assert peer.is_hung_up_on()
    assert bodies(broker, "lies") == [numbers(AT)]


# ----------------------------------------------------------------------------------- ids


def test_ids_that_wrap_in_the_middle_of_a_run_are_those_of_its_deliveries(
    broker: BrokerProcess,
) -> None:
    """Of deliveries, of frames and of the link's count; handles are written long and short."""
    first, handles = WRAP - 5, (0, 255, 256, 1023)
    with RawPeer(broker) as peer:
        peer.opened()
        peer.say(Begin(next_outgoing_id=WRAP - 3, incoming_window=100, outgoing_window=100))
        peer.until(Begin)
        for handle in handles:
            peer.sending(f"wraps.{handle}", handle, initial_delivery_count=WRAP - 2)
        for turn in range(2):  # the second begins where the first has wrapped
            for at, handle in enumerate(handles):
                begin = first + COUNT * (len(handles) * turn + at)
                run = range(begin, begin + COUNT)
                peer.write(b"".join(frame(number, handle=handle) for number in run))
                assert answered(peer, COUNT) == [number % WRAP for number in run]
        peer.say(Flow(0, 100, plus(WRAP - 3, 2 * 4 * COUNT), 100, 255, 0, 0, echo=True))
        told = peer.until(Flow)
        while told.delivery_count is None or not told.link_credit:
            told = peer.until(Flow)
        assert told.delivery_count == plus(WRAP - 2, 2 * COUNT)
    for at, handle in enumerate(handles):
        expected = [
            *numbers(COUNT, first + COUNT * at),
            *numbers(COUNT, first + COUNT * (len(handles) + at)),
        ]
        assert bodies(broker, f"wraps.{handle}") == [expected]


OUT_OF_ORDER = {
    "the same": 6,
    "the one before": 5,
    "the first": 0,
    "half of all ids ahead": 6 + (1 << 31),
    "the one before the first": WRAP - 1,
}


@pytest.mark.parametrize("wrong", OUT_OF_ORDER.values(), ids=OUT_OF_ORDER)
def test_an_id_out_of_order_in_the_middle_of_a_run_ends_the_session_there(
    broker: BrokerProcess, wrong: int
) -> None:
    run = [*range(AT), wrong, *range(AT, COUNT)]
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("order")
        # Each has a tag of its own, so it is the id that is wrong.
        frames = [frame(number) for number in run]
        frames[AT] = frames[AT].replace(b"%10d" % wrong, b"%10s" % b"wrong", 1)
        peer.write(b"".join(frames))
        assert condition(peer.until(End)) == "amqp:invalid-field"
    assert bodies(broker, "order") == [numbers(AT)]


@pytest.mark.parametrize("gap", [2, 1000, FAR])
def test_ids_that_leave_a_gap_are_taken_as_they_are(broker: BrokerProcess, gap: int) -> None:
    run = [*range(AT), *range(AT - 1 + gap, AT - 1 + gap + COUNT)]
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("gap")
        peer.write(b"".join(map(frame, run)))
        assert sorted(answered(peer, len(run))) == run
    assert bodies(broker, "gap") == [[*map(str, run)]]


@pytest.mark.parametrize("handle", [1, 0xFF, 0x100, 0xFFFF_FFFF])
def test_a_frame_of_a_handle_of_nobody_in_a_run_ends_the_session_there(
    broker: BrokerProcess, handle: int
) -> None:
    frames = [frame(number, handle=handle if number == AT else 0) for number in range(COUNT)]
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("nobody")
        peer.write(b"".join(frames))
        assert condition(peer.until(End)) == "amqp:session:unattached-handle"
    assert bodies(broker, "nobody") == [numbers(AT)]


# --------------------------------------------------------------------------- what is in between

BETWEEN: dict[str, Callable[[], bytes]] = {
    "a heartbeat": lambda: EMPTY_FRAME,
    "a delivery of another link": lambda: frame(AT, handle=1),
    "a flow of another link": lambda: encoded_frame(Flow(0, 100, AT, 100, 1, 0, 0)),
    "a disposition of nothing": lambda: encoded_frame(Disposition(True, 0, FAR, settled=True)),
    "another link": lambda: encoded_frame(
        Attach("new", 2, False, source=Source(), target=Target("new"), initial_delivery_count=0)
    ),
    "half of a delivery of another link": lambda: transfer_frame(
        0, Transfer(1, AT, b"half", 0, more=True), 0
    ),
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_what_comes_in_between_cuts_a_run_and_changes_nothing_of_it(
    broker: BrokerProcess, between: Callable[[], bytes]
) -> None:
    middle = between()
    is_delivery = b"\x00\x53\x14" in middle  # it has an id then
    ids = [*range(AT), *range(AT + is_delivery, COUNT + is_delivery)]
    is_whole = is_delivery and b"half" not in middle
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("one").sending("other", 1)
        peer.write(b"".join(map(frame, ids[:AT])) + middle + b"".join(map(frame, ids[AT:])))
        expected = sorted([*ids, AT] if is_whole else ids)
        assert sorted(answered(peer, len(expected))) == expected
    assert bodies(broker, "one", "other") == [[*map(str, ids)], numbers(int(is_whole), AT)]


def test_links_that_take_turns_have_each_their_own(broker: BrokerProcess) -> None:
    lengths = [1, 2, 7, 3, 1, 1, 20, 5]
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("odd", 0).sending("even", 1)
        frames, ids = b"", ([], [])  # type: tuple[bytes, tuple[list[str], list[str]]]
        for turn, length in enumerate(lengths):
            for _ in range(length):
                number = len(ids[0]) + len(ids[1])
                frames += frame(number, handle=turn % 2)
                ids[turn % 2].append(str(number))
        peer.write(frames)
        assert sorted(answered(peer, sum(lengths))) == [*range(sum(lengths))]
    assert bodies(broker, "odd", "even") == [*ids]


# ------------------------------------------------------------------------------------- cuts


def test_a_run_that_is_cut_at_any_byte_is_the_same_run(broker: BrokerProcess) -> None:
    """The first piece ends behind a question whose answer is awaited, so it is a read by itself."""
    run = 3
    size = run * len(frame(0))
    with RawPeer(broker) as peer:
        peer.opened().begun().sending("cut")
        for cut in range(1, size):
            begin = cut * run
            whole = b"".join(frame(number) for number in range(begin, begin + run))
            asked = Flow(0, 100, begin, 100, 0, 0, 0, echo=True)
            peer.write(encoded_frame(asked) + whole[:cut])
            while (peer.until(Flow).next_incoming_id or 0) < begin:
                pass  # the broker's own
            peer.write(whole[cut:])
            assert answered(peer, run) == [*range(begin, begin + run)], cut
    assert bodies(broker, "cut") == [numbers(run * (size - 1), run)]


def test_of_a_run_that_ends_at_any_byte_what_was_whole_is_taken(broker: BrokerProcess) -> None:
    size = len(frame(0))
    expected: list[str] = []
    for cut in range(1, 3 * size, 3):
        run = range(3 * cut, 3 * cut + 3)
        with RawPeer(broker) as peer:
            peer.opened().begun().sending("ended")
            peer.write(b"".join(map(frame, run))[:cut])
        expected += [str(number) for number in run][: cut // size]
    with RawPeer(broker) as peer:  # they are all heard by now: the broker reads in turns
        peer.opened().begun().sending("ended")
        peer.write(frame(0, "last"))
        answered(peer, 1)
    assert bodies(broker, "ended") == [[*expected, "last"]]


# ----------------------------------------------------------------------------- what is settled


def receiving(peer: RawPeer, *queues: str, credit: int = 40) -> None:
    """Attach as a receiver of each queue, and wait for all that they have."""
    for handle, queue in enumerate(queues):
        peer.say(attach(handle, is_receiver=True, source=Source(queue), target=Target("t")))
        peer.until(Attach)
    for handle in range(len(queues)):
        peer.say(flow(handle, credit, incoming_window=1000))


def deliveries(peer: RawPeer, count: int) -> list[Transfer]:
    """The next so many, whose ids follow each other from 0."""
    came = [peer.until(Transfer) for _ in range(count)]
    assert [each.delivery_id for each in came] == [*range(count)]
    return came


def filled(broker: BrokerProcess, queues: Sequence[str], count: int) -> None:
    """Put so many messages on each queue."""
    with RawPeer(broker) as peer:
        peer.opened().begun()
        for handle, queue in enumerate(queues):
            peer.sending(queue, handle)
            run = range(handle * count, handle * count + count)
            peer.write(b"".join(frame(number, handle=handle) for number in run))
            answered(peer, count)


def test_who_settles_every_second_message_leaves_the_others_in_their_order(
    broker: BrokerProcess,
) -> None:
    filled(broker, ["second"], 20)
    with RawPeer(broker) as peer:
        peer.opened().begun()
        receiving(peer, "second")
        deliveries(peer, 20)
        evens = range(0, 20, 2)
        peer.say(*(Disposition(True, n, settled=True, state=Accepted()) for n in evens))
        peer.say(Disposition(True, 0, 19, settled=True, state=Released()))  # half of it is decided
        peer.say(Close())
        assert peer.is_hung_up_on()
    assert bodies(broker, "second") == [[str(n) for n in range(1, 20, 2)]]


RANGES = {
    "everything twice": [(0, 19), (0, 19)],
    "far more than there is": [(0, FAR), (0, FAR)],
    "from before it": [(WRAP - 9, 19)],
    "halves that share some": [(0, 12), (7, 19)],
    "last first": [(10, 19), (0, 9)],
    "with nothing around it": [(100, 200), (25, 30), (3, 2), (FAR, FAR), (0, 19), (19, 0)],
}


@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES)
def test_ranges_settle_what_they_name_of_every_link_once(
    broker: BrokerProcess, ranges: list[tuple[int, int]]
) -> None:
    filled(broker, ["left", "right"], 10)
    with RawPeer(broker) as peer:
        peer.opened().begun()
        receiving(peer, "left", "right")
        deliveries(peer, 20)
        peer.say(*(Disposition(True, *each, settled=True, state=Accepted()) for each in ranges))
        peer.say(Close())
        assert peer.is_hung_up_on()
    assert bodies(broker, "left", "right") == [[], []]


NAMING_NOTHING = {
    "ids that were never used": [(20, 40), (FAR - 9, FAR), (WRAP - 9, WRAP - 1)],
    "last before first": [(5, 3), (19, 0)],
    "half of all ids, from where none is": [(20, 20 + FAR)],
}


@pytest.mark.parametrize("ranges", NAMING_NOTHING.values(), ids=NAMING_NOTHING)
def test_ranges_of_nothing_settle_nothing(
    broker: BrokerProcess, ranges: list[tuple[int, int]]
) -> None:
    filled(broker, ["kept"], 20)
    with RawPeer(broker) as peer:
        peer.opened().begun()
        receiving(peer, "kept")
        deliveries(peer, 20)
        peer.say(*(Disposition(True, *each, settled=True, state=Accepted()) for each in ranges))
        peer.say(Close())
        assert peer.is_hung_up_on()
    assert bodies(broker, "kept") == [numbers(20)]


def test_a_range_that_holds_another_links_deliveries_decides_those_too(
    broker: BrokerProcess,
) -> None:
    """A disposition is of the session: 2.7.6 has no handle."""
    filled(broker, ["a", "b"], 10)
    with RawPeer(broker) as peer:
        peer.opened().begun()
        receiving(peer, "a", "b")
        handles = [each.handle for each in deliveries(peer, 20)]
        assert len({*handles}) == 2
        peer.say(Disposition(True, 5, 14, settled=True, state=Accepted()))
        peer.say(Close())
        assert peer.is_hung_up_on()
    kept: list[list[str]] = []
    for handle, begin in ((0, 0), (1, 10)):
        ids = [at for at in range(20) if handles[at] == handle]
        kept.append([str(begin + n) for n, at in enumerate(ids) if not 5 <= at <= 14])
    assert bodies(broker, "a", "b") == kept
