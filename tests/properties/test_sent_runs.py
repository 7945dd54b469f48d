"""Runs of deliveries that we sent mean what their deliveries mean one by one, however they are cut.

The oracle knows each delivery by itself. Ids begin where they wrap around at 2³² or anywhere else;
dispositions name ranges that hold another link's deliveries, nothing, or everything twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0.composites import Accepted, Disposition, Received, Released
from broker_shim.protocol_1_0.codec.frames import encoded_frame
from broker_shim.protocol_1_0.events import DispositionReceived
from broker_shim.protocol_1_0.serial import WRAP, distance, plus
from tests.support.amqp.amqp_1_0 import Client, flow, server

FAR = (1 << 31) - 1
_LINK = st.sampled_from([0, 0, 1])
_RANGE = st.tuples(st.integers(-2, 15), st.integers(-2, 20))
_STATE = st.sampled_from([Accepted(), Released(), Received(0, 0), None])
_STEPS = st.lists(
    st.tuples(st.just("send"), _LINK, st.integers(1, 9), st.booleans())
    | st.tuples(st.just("hear"), _RANGE, _STATE, st.booleans())
    | st.tuples(st.just("settle"), _LINK, st.integers(0, 20))
    | st.tuples(st.just("detach"), _LINK),
    max_size=14,
)


@dataclass
class One:
    """A delivery as the oracle knows it."""

    link: int
    tag: bytes
    is_open: bool
    heard: Any = None


class Tags(list[bytes]):
    """An owner's column: it is cut as the run is."""

    def cut(self, count: int) -> Tags:
        rest = Tags(self[count:])
        del self[count:]
        return rest


class Peers:
    """A session with two links, and the oracle beside it."""

    def __init__(self, start: int, work: int) -> None:
        self.client = Client(server()).opened()
        self.client.begun(window=FAR)
        self.links = [self.client.receiving(handle, credit=0) for handle in (0, 1)]
        for handle in (0, 1):
            self.client.send(flow(handle, 500, incoming_window=FAR))
        self.client.events.clear()
        self.start, self.work, self.ones = start, work, list[One]()
        self.places: list[list[Any]] = [[], []]
        self.links[0].port._sent.next_number = start

    def send(self, link: int, count: int, *, settled: bool) -> None:
        """Start deliveries together."""
        if self.links[link].is_gone:
            return
        tags = Tags(b"%d" % (len(self.ones) + at) for at in range(count))
        self.ones += [One(link, tag, not settled) for tag in tags]
        held = None if settled else Tags(tags)
        for run in self.links[link].transfer_all(
            tags, [[b"x"] * count], settled=settled, held=held
        ):
            self.places[link].append(run.place)
        self.client.read()

    def hear(self, where: tuple[int, int], state: Any, *, settled: bool) -> None:
        """Hear a disposition over a range, in turns of little work."""
        first, last = where
        said = Disposition(True, plus(self.start, first), plus(self.start, last), settled, state)
        named = self.ones[max(0, first) : max(0, last + 1)]
        expected = [self._told(one, state, settled=settled) for one in named]
        peer = self.client.peer
        peer.receive_data(encoded_frame(said), now_s=0.0, most_work=self.work)
        self.client.events += peer.events()
        while peer.has_more:
            peer.go_on(self.work)
            self.client.events += peer.events()
        heard: list[bytes] = []
        for event in self.client.events:
            assert isinstance(event, DispositionReceived)
            for run in event.deliveries:
                assert [*run.tags] == run.held
                heard += run.tags
        self.client.events.clear()
        assert heard == [tag for tag in expected if tag is not None]

    def _told(self, one: One, state: Any, *, settled: bool) -> bytes | None:
        """Hear it of one delivery: its tag if that is news."""
        is_told = one.is_open and (settled or state is not None)
        if not is_told or self.links[one.link].is_gone:
            return None
        is_news = settled or isinstance(state, Received) or one.heard != state
        one.heard, one.is_open = state if state is not None else one.heard, not settled
        return one.tag if is_news else None

    def settle(self, link: int, which: int) -> None:
        """Settle what was handed over together, whatever became of it meanwhile."""
        places = self.places[link]
        if not places or self.links[link].is_gone:
            return
        number, count = place = places[which % len(places)]
        first = number - self.start
        settled = [at for at in range(first, first + count) if self.ones[at].is_open]
        self.links[link].dispose([place], Accepted())
        ids: list[int] = []
        for said in self.client.performatives():
            span = 0 if said.last is None else distance(said.first, said.last)
            ids += [plus(said.first, offset) for offset in range(span + 1)]
        assert ids == [plus(self.start, at) for at in settled]
        for at in settled:
            self.ones[at].is_open = False

    def detach(self, link: int) -> None:
        """End a link: nothing is heard of its deliveries any more, and they stay with it."""
        if not self.links[link].is_gone:
            self.links[link].detach()
            self.client.read()

    def check(self) -> None:
        """See that both know the same deliveries."""
        left = [one for one in self.ones if one.is_open]
        for number, link in enumerate(self.links):
            ours = {one.tag: one.heard for one in left if one.link == number}
            assert {tag: run.remote_state for tag, run in link.unsettled.items()} == ours
            assert link._tags == ours.keys()
        attached = [one for one in left if not self.links[one.link].is_gone]
        assert self.links[0].port.unsettled_count == len(attached)


@given(st.sampled_from([0, WRAP - 5, FAR - 3]), st.sampled_from([1, 3, 1_000]), _STEPS)
def test_runs_that_are_cut_mean_what_their_deliveries_mean_one_by_one(
    start: int, work: int, steps: list[tuple[Any, ...]]
) -> None:
    peers = Peers(start, work)
    for link, count in ((0, 7), (1, 3), (0, 5)):
        peers.send(link, count, settled=False)
    for step, *said in steps:
        if step == "send":
            peers.send(said[0], said[1], settled=said[2])
        elif step == "hear":
            peers.hear(said[0], said[1], settled=said[2])
        elif step == "settle":
            peers.settle(said[0], said[1])
        else:
            peers.detach(said[0])
        peers.check()
