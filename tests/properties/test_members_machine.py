"""Several members of a real store service, with crashes, cut connections and completions held back.

Each member is a connection that speaks the protocol by hand: what the service sends stays in the
socket until a step reads it, so answers and grants of different members are seen in any order. What
must hold: no message is granted while somebody else holds it, none after it was settled, a process
that a newer one of its name replaced is sent away, and in the end all that was put and not settled
comes, each message once.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from broker_shim.store import protocol as wire
from broker_shim.store.remote import member_records as made
from sparkstore.core.records import Record
from tests.support.roots.logs import BY_HAND, image_of
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.raw_member import RawMember, create, enqueue

NAMES = st.sampled_from("ab")
NUMBERS = st.integers(0, 20)
FLAGS = st.booleans()
HOLDER, SUBSCRIPTION = "c", 1


@dataclass
class Member:
    """What a test knows of a member.

    Attributes:
        incarnation: Of its process.
        peer: Its connection, if it has one.
        subscribes: It has said on that what it consumes.
        next_request: The number of its next request.
        held: Granted to it, and not decided.
        granted: How many were, since it subscribed.
        limit: Of its credit.
        caught_up: The limit that it was last told to be at the end for.
    """

    incarnation: str = ""
    peer: RawMember | None = None
    subscribes: bool = False
    next_request: int = 1
    held: set[int] = field(default_factory=set)
    granted: int = 0
    limit: int = 0
    caught_up: int = -1


class MembersMachine(RuleBasedStateMachine):
    """Two members that consume one queue; a third that only puts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sparkstore-members-"))
        self.lives = 0
        self.there: set[int] = set()
        self.settled: set[int] = set()
        self.members = {name: Member() for name in ("a", "b", "p")}
        self.service = ServicedRoot(self.folder / "0", config=BY_HAND)
        self.connect("p", anew=True)
        self.ask("p", create())
        for name in "ab":
            self.connect(name, anew=True)

    def teardown(self) -> None:
        self.everything_comes()
        self.hang_up()
        self.service.stop()
        shutil.rmtree(self.folder)

    def hang_up(self) -> None:
        for name in self.members:
            self.cut(name)

    # -- what a member does ------------------------------------------------------------------

    @rule(count=st.integers(1, 3))
    def put(self, count: int) -> None:
        peer = self.members["p"].peer
        assert peer is not None
        first = peer.ids(count)
        ids = range(first, first + count)
        self.ask("p", *map(enqueue, ids))
        self.there.update(ids)

    @rule(name=NAMES, anew=FLAGS, subscribes=FLAGS)
    def connect(self, name: str, anew: bool, subscribes: bool = True) -> None:
        """The same process on another connection, or a new one: its old one loses what it held.

        Its consumer may have gone meanwhile, and left what it held to the process.
        """
        member = self.members[name]
        before = member.peer
        if anew or not member.incarnation:
            member.incarnation = str(uuid4())
            member.held.clear()
        elif before is not None:
            before.close()
        member.peer = RawMember(self.service.path, name, member.incarnation)
        member.next_request = member.peer.hello().last_request + 1
        if anew and before is not None:
            self.is_sent_away(before)
        if name != "p":
            held = tuple(member.held)
            member.peer.say(wire.WATCH, "", 0, (("q", held),))
            if subscribes:
                member.peer.say(wire.SUBSCRIBE, SUBSCRIPTION, "q", HOLDER, None, 0, held)
            member.subscribes = subscribes
            member.granted, member.limit, member.caught_up = 0, 0, -1

    def is_sent_away(self, replaced: RawMember) -> None:
        """The older process of a name is told to go; what it had been granted counts no more."""
        while True:
            frame = replaced.hears()
            if frame is None or frame[0] == wire.GOODBYE:
                replaced.close()
                return

    @rule(name=NAMES)
    def cut(self, name: str) -> None:
        """What was on its way is lost with the connection."""
        member = self.members[name]
        if member.peer is not None:
            member.peer.close()
            member.peer = None

    @precondition(lambda self: any(self.members[name].peer for name in "ab"))
    @rule(name=NAMES, count=st.integers(1, 4))
    def credit(self, name: str, count: int) -> None:
        member = self.members[name]
        if member.peer is not None and member.subscribes:
            member.limit += count
            member.peer.say(wire.CREDIT, SUBSCRIPTION, member.limit)

    @rule(name=NAMES)
    def read(self, name: str) -> None:
        """All that is granted for the credit that there is, or that there is no more."""
        member = self.members[name]
        while (
            member.peer is not None
            and member.granted < member.limit
            and member.caught_up != member.limit
        ):
            self.hear(name)

    @rule(name=NAMES, number=NUMBERS, settles=FLAGS)
    def decide(self, name: str, number: int, settles: bool) -> None:
        """Settle a message that it holds, or give it back."""
        member = self.members[name]
        if member.peer is None or not member.held:
            return
        message_id = sorted(member.held)[number % len(member.held)]
        if settles:
            record = made.dequeued((message_id,), "q", HOLDER, None)
            self.settled.add(message_id)
        else:
            terms = {"delivery_failed": False, "annotations": None}
            record = made.released((message_id,), "q", HOLDER, **terms)
        member.held.discard(message_id)
        self.ask(name, record._replace(message_id=message_id))

    @rule(name=NAMES)
    def nothing_is_stuck(self, name: str) -> None:
        """What was on its way to a lost connection waits again: one member is granted the rest."""
        (other,) = {"a", "b"} - {name}
        for each in (other, name):
            self.connect(each, not self.members[each].incarnation, subscribes=each == name)
        self.credit(name, len(self.there) + 1)
        left = self.there - self.settled - self.members[other].held
        while self.members[name].held != left:  # the service learns of a lost connection by itself
            self.hear(name)

    # -- what happens to the service ---------------------------------------------------------

    @rule(killed=FLAGS)
    def restart_the_service(self, killed: bool) -> None:
        """Whatever was told to be done is done; what was on its way to members waits again."""
        self.lives += 1
        before, after = self.folder / str(self.lives - 1), self.folder / str(self.lives)
        if killed:
            image_of(before, after)  # as a kill leaves it, while it runs
        self.hang_up()
        self.service.stop()
        if not killed:
            before.rename(after)
        self.service = ServicedRoot(after, config=BY_HAND)
        self.connect("p", anew=False)

    # -- what must hold ----------------------------------------------------------------------

    @invariant()
    def nobody_holds_what_another_holds_or_what_is_settled(self) -> None:
        a, b = self.members["a"].held, self.members["b"].held
        assert not a & b
        assert not (a | b) & self.settled

    def everything_comes(self) -> None:
        """New processes lose what their old ones held: one of them is granted all there is."""
        for name in "ab":
            self.connect(name, anew=True)
        self.cut("b")
        member, left = self.members["a"], self.there - self.settled
        while member.held != left:
            assert member.held < left
            self.credit("a", len(left))
            self.read("a")

    def ask(self, name: str, *records: Record) -> None:
        """A request, which nothing may refuse."""
        member = self.members[name]
        assert member.peer is not None
        request, member.next_request = member.next_request, member.next_request + 1
        member.peer.say(wire.DO, request, records)
        while self.hear(name) < request:
            pass

    def hear(self, name: str) -> int:
        """Take one frame in; the request that it says is done, 0 for other frames."""
        member = self.members[name]
        assert member.peer is not None
        frame = member.peer.hears()
        assert frame is not None
        kind, body = frame
        if kind == wire.DONE:
            assert not body[1]
            return int(body[0])
        if kind == wire.CAUGHT_UP:
            member.caught_up = body[1]
        elif kind == wire.GRANTED:
            for message_id in (message_id for run in body for message_id in run[1]):
                assert message_id in self.there - self.settled
                assert not any(message_id in each.held for each in self.members.values())
                member.held.add(message_id)
                member.granted += 1
        else:
            assert kind == wire.CHANGES, frame
            member.peer.say(wire.SEEN)
        return 0


@pytest.mark.slow
def test_members_share_a_queue_whatever_crashes_and_whenever_they_hear_of_it() -> None:
    examples = max(2, settings().max_examples // 10)
    run(MembersMachine, settings=settings(max_examples=examples, stateful_step_count=30))
