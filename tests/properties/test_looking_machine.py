"""Consumers with selectors and message groups: whatever happens, nobody misses a message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_shim.broker.queues.message_groups import bucket_of
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_index import Survivors
from broker_shim.broker.queues.selective_cursor import Batch, SelectiveCursor, WorkBudget, group_of
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.selectors import parse
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.records import MessageHeader

CONSUMERS = st.integers(0, 2)
SELECTORS = [None, "kind = 'even'", "kind <> 'even' OR JMSPriority = 9"]
NUMBERS = count(1)
GROUPS = st.sampled_from([None, "a", "a", "b"])


@dataclass(eq=False)
class Taker:
    """Takes so many, and holds them."""

    selector: str | None
    credit: int = 2
    held: list[int] = field(default_factory=list)
    holder: str = field(default_factory=lambda: f"taker {next(NUMBERS)}")
    is_here: bool = True

    def assign(self, message_ids: Sequence[int]) -> int:
        self.credit -= len(message_ids)
        self.held += message_ids
        return len(message_ids)

    def caught_up(self) -> None:
        """Nothing waits for it."""


class LookingMachine(RuleBasedStateMachine):
    """Batches are read when it suits: arrivals, takes and returns come in between."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: dict[int, MessageHeader] = {}
        self.waiting: set[int] = set()
        self.reading: list[tuple[SelectiveCursor, Batch]] | None = None
        self.departed: list[Taker] = []

    @initialize(has_groups=st.booleans())
    def begin(self, has_groups: bool) -> None:
        self.has_groups = has_groups
        self.queue = QueueDispatch("q", arguments=QueueArguments(message_groups=has_groups))
        self.takers = [Taker(text) for text in SELECTORS]
        for taker in self.takers:
            self.add(taker)

    def add(self, taker: Taker) -> None:
        self.queue.add(taker, None if taker.selector is None else parse(taker.selector))

    @rule(count=st.integers(1, 6), priority=st.sampled_from([4, 4, 9]), group=GROUPS)
    def arrive(self, count: int, priority: int, group: str | None) -> None:
        for message_id in range(len(self.headers) + 1, len(self.headers) + count + 1):
            properties = (("kind", "odd" if message_id % 2 else "even"),)
            header = MessageHeader(priority=priority, group_id=group, properties=properties)
            self.headers[message_id] = header
            self.queue.arrived([message_id], priority)
            self.waiting.add(message_id)

    @rule(who=CONSUMERS, credit=st.integers(1, 5))
    def give_credit(self, who: int, credit: int) -> None:
        self.takers[who].credit += credit

    @rule(count=st.integers(1, 7))
    def ask(self, count: int) -> None:
        groups = self.queue.groups
        if groups is not None and groups.unplaced:  # these first, one after the other
            message_id = min(groups.unplaced)
            group = group_of(AmqpCommonHeader(self.headers[message_id]))
            groups.placed(message_id, group)
        else:
            self.reading = self.reading or self.queue.to_look_at(count)

    @rule()
    def restart(self) -> None:
        """Who holds something holds it still, and is not here before it comes again."""
        self.queue = QueueDispatch("q", arguments=self.queue.arguments)
        held = {each: taker for taker in (*self.takers, *self.departed) for each in taker.held}
        there = [(self.headers[each].priority, each) for each in {*self.waiting, *held}]
        priorities, message_ids = zip(*sorted(there), strict=True) if there else ((), ())
        self.queue.recovered([Survivors(message_ids, priorities, {})])
        self.queue.withdraw(held)
        for message_id, taker in held.items() if self.queue.groups is not None else ():
            self.queue.groups.held(message_id, taker.holder)
        for taker in self.takers:
            taker.is_here = False
        self.reading = None

    @rule(who=CONSUMERS)
    def come_again(self, who: int) -> None:
        if not self.takers[who].is_here:
            self.takers[who].is_here = True
            self.add(self.takers[who])

    @rule(works=st.booleans(), steps=st.integers(1, 9))
    def answer(self, works: bool, steps: int) -> None:
        for cursor, batch in [] if self.reading is None or works else self.reading:
            cursor.put_off(batch)
        if self.reading is not None and works:
            headers: dict[int, AmqpCommonHeader | None] = {
                message_id: AmqpCommonHeader(self.headers[message_id])
                for _cursor, batch in self.reading
                for _place, message_id in batch
            }
            self.reading = self.queue.judge(self.reading, headers, WorkBudget(steps))
        if not works or not self.reading:
            self.reading = None

    @rule()
    def hand_out(self) -> None:
        for message_id, consumer in self.queue.take_found():
            consumer.assign((message_id,))
        self.queue.dispatch()
        self.waiting -= {each for taker in self.takers for each in taker.held}

    @rule(count=st.integers(1, 9))
    def serve(self, count: int) -> None:
        """As the broker does it, until there is nothing left to do."""
        while self.reading or self.queue.unfinished():
            self.ask(count)
            self.answer(works=True, steps=count)
            self.hand_out()
        self.hand_out()

    @rule(who=CONSUMERS, is_first=st.booleans(), comes_back=st.booleans())
    def settle(self, who: int, is_first: bool, comes_back: bool) -> None:
        held = self.takers[who].held
        if held:
            self.end(held.pop(0 if is_first else -1), comes_back=comes_back)

    @precondition(lambda self: any(taker.held for taker in self.takers))
    @rule(who=CONSUMERS)
    def leave_and_another_comes(self, who: int) -> None:
        taker = self.takers[who]
        taker.credit = 0
        self.queue.discard(taker)
        self.departed.append(taker)
        self.takers[who] = Taker(taker.selector)
        self.add(self.takers[who])

    @precondition(lambda self: any(taker.held for taker in self.departed))
    @rule()
    def what_a_departed_one_held_comes_back(self) -> None:
        for taker in self.departed:
            while taker.held:
                self.end(taker.held.pop(), comes_back=True)

    def end(self, message_id: int, *, comes_back: bool) -> None:
        if comes_back:
            self.queue.released(message_id, delivery_failed=False)
            self.waiting.add(message_id)
        else:
            self.queue.removed((message_id,))

    @rule()
    def nobody_misses_anything(self) -> None:
        """When all is read and handed out, who has credit has got all that it may have."""
        self.what_a_departed_one_held_comes_back()
        self.serve(3)
        for taker in self.takers:
            if taker.credit and taker.is_here:
                assert not [each for each in self.waiting if self.may_have(taker, each)]
                assert self.queue.has_caught_up(taker)

    def may_have(self, taker: Taker, message_id: int) -> bool:
        header = self.headers[message_id]
        if taker.selector and not parse(taker.selector).fits(AmqpCommonHeader(header).get):
            return False
        if not (self.has_groups and header.group_id):
            return True
        assert self.queue.groups is not None
        return self.queue.groups.may_have(bucket_of(header.group_id), taker)

    @invariant()
    def a_group_is_with_one_consumer(self) -> None:
        if self.headers and self.has_groups:
            for group in ("a", "b"):
                holders = [
                    taker
                    for taker in (*self.takers, *self.departed)
                    if any(self.headers[each].group_id == group for each in taker.held)
                ]
                assert len(holders) <= 1


TestLooking = LookingMachine.TestCase
