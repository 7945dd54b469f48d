"""Messages that consumers on members are to have: acquired for them, then told to them.

All that one turn of the loop hands out is one decision under one holding of the store's lock, one
item of the log, and one completion. Each member is told its part in one frame. Content that is not
in memory is read before that, so that no member has to ask for it.

Why a consumer gets its messages in their order: turns are decided in their order, whichever was
read first. Why nothing goes wrong meanwhile: nothing was acquired, so nobody can release it. A
consumer or queue that ends then is met where one would be that ended within the turn.

Why no message is lost or had twice: it is acquired in the holder's name before anybody is told, and
told when that is durable. If the consumer is gone by then, it is given back. If the frame is lost
with its connection, the member does not name the message when it comes back, and it is given back
(`member_dispatcher`). If the member never comes back, the message is given back with all else that
it holds (`service.members`).

Decision: this is no outlet of `broker.delivery`, as the two listeners' consumers are. There a
message is acquired, loaded and sent for one consumer; what is large waits, and what its client
takes back returns. Each consumer of a member has just that at its own broker, by
`ConsumerDelivery`, which asks for no acquire once a grant has come. Run here, too, it would make an
acquire and a completion for each consumer and turn, where one decision serves all members together.
And it would keep content in memory that members may never ask for. The rules stand once in
spite of that: what becomes of a message that was refused, not taken or too old is decided by
`Undelivered`, and who gets the next one by `QueueDispatch`. What is damaged, the member that
asks for it finds out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, compress
from operator import not_
from typing import TYPE_CHECKING, Any

from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import wall_us
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import ENDED, NotNow, StoreError
from broker_shim.service.members import given_back_steps, held_by, messages_in
from broker_shim.store import protocol as wire
from broker_shim.store.delta import Batch, DeltaMessageStore
from broker_shim.store.granted_run import GrantedRun, columns_of
from broker_shim.store.interface import Content, StoredMessage
from broker_shim.store.reads import Loaded
from sparkstore.core import records
from sparkstore.core.entries import facts_of
from sparkstore.core.fold import State
from sparkstore.core.packed_integers import as_range
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine import batches
from sparkstore.core.state_machine.call_values import RecordStep

if TYPE_CHECKING:
    from broker_shim.members.consumers import MemberConsumer
    from broker_shim.service.member_connection import MemberConnection

_log = logging.getLogger(__name__)

_ALONG_BYTES = 1 << 16
"""Content that is not larger goes along, so that the member need not ask for it."""
_FRAME_BYTES = 4 << 20


def _nothing() -> None:
    """Do nothing: no caller waits for it."""


Due = tuple["MemberConsumer", Sequence[int]]
"""Messages that are to be acquired for a consumer, in their order."""
_Contents = dict[int, Content]
_Acquired = tuple["MemberConsumer", Sequence[int], Sequence[Sequence[Any]]]
"""Messages that were, and what their entries say, as columns."""


@dataclass(slots=True)
class _Round:
    """The messages that one turn hands out.

    Attributes:
        due: Consumers and messages, in order.
        contents: Header and content of messages that are to go along, by id.
        is_loading: More is being read.
    """

    due: list[Due]
    contents: _Contents = field(default_factory=dict)
    is_loading: bool = False


class Grants:
    """The messages on their way to members' consumers. On the loop's thread only."""

    def __init__(self, broker: Broker, store: DeltaMessageStore, inbox: Inbox) -> None:
        self._broker, self._store, self._inbox = broker, store, inbox
        self._calls, self._undelivered = broker.calls, broker.undelivered
        self._due: dict[MemberConsumer, list[int]] = {}
        self._rounds: deque[_Round] = deque()

    def add(self, consumer: MemberConsumer, message_ids: Sequence[int]) -> None:
        """The queue holds messages for a consumer: acquire them at the end of this turn."""
        self._due.setdefault(consumer, []).extend(message_ids)

    def withdraw(self, consumer: MemberConsumer) -> None:
        """Let messages wait again that are not acquired for a consumer which is gone.

        So it is not acquired for nobody, and given back after what came later was handed out.
        """
        withdrawn: list[Due] = [(consumer, self._due.pop(consumer, []))]
        for round_ in self._rounds:
            withdrawn += [its for its in round_.due if its[0] is consumer]
            round_.due = [its for its in round_.due if its[0] is not consumer]
        self._not_granted(withdrawn)

    def _not_granted(self, due: Sequence[Due]) -> None:
        """Let messages be on their queues as the store has them: other members may have some."""
        for consumer, message_ids in due:
            for message_id in message_ids:
                consumer.not_granted()
                self._undelivered.not_taken(consumer.queue, message_id)

    def flush(self) -> None:
        """The end of a turn."""
        if not self._due:
            return
        due = [(consumer, as_range(message_ids)) for consumer, message_ids in self._due.items()]
        round_, self._due = _Round(due), {}
        self._rounds.append(round_)
        self._calls.open_count += 1
        try:
            self._load(round_)
        except StoreError as error:
            self._calls.on_fatal(error)
            return
        self._go_on()

    def _load(self, round_: _Round) -> None:
        """Read what is to go along and is not in memory; beyond a frame it is asked for.

        Raises:
            Closed: The store is closed.
        """
        wanted = self._wanted(round_)
        if not wanted:
            return
        round_.is_loading = True
        left = len(wanted)

        def loaded(message_id: int, content: Loaded) -> None:
            """Keep what was read, on the store's thread.

            What cannot be read is told to the member that asks for it.
            """
            nonlocal left
            left -= 1
            if isinstance(content, StoredMessage):
                round_.contents[message_id] = content[1:3]
            if not left:
                self._inbox.post(lambda _nothing: self._loaded(round_), None)

        self._store.prefetch(wanted, loaded)

    def _wanted(self, round_: _Round) -> list[int]:
        """Choose what is to be read, and keep what is in memory; what is too old is left out."""
        due, round_.due = round_.due, []
        absent, now_us = dict[int, int](), wall_us()
        for consumer, message_ids in due:
            facts = facts_of(self._calls.entries(consumer.queue.name), message_ids)
            ends = facts.expires_at
            some_end = ends.count(None) < len(ends)
            late = [end is not None and end <= now_us for end in ends] if some_end else ()
            if any(late):
                self._leave_out(consumer, [*compress(message_ids, late)])
                rest = [*compress(message_ids, map(not_, late))]
                if not rest:
                    continue
                message_ids = as_range(rest)  # noqa: PLW2901  # what is not too old
                facts = facts_of(self._calls.entries(consumer.queue.name), message_ids)
            round_.due.append((consumer, message_ids))
            if consumer.peer.has_room:
                absent.update(self._absent(round_, message_ids, facts.message_bytes))
        room = accumulate(absent.values())
        return [number for number, size in zip(absent, room, strict=True) if size <= _FRAME_BYTES]

    def _absent(
        self, round_: _Round, message_ids: Sequence[int], sizes: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """Keep what is in memory of content that is to go along; what is not, and its size."""
        small = message_ids
        if not 0 < min(sizes) <= max(sizes) <= _ALONG_BYTES:
            pairs = zip(message_ids, sizes, strict=True)
            small = [message_id for message_id, size in pairs if 0 < size <= _ALONG_BYTES]
        contents = self._store.at_hand(small)
        round_.contents.update(contents)
        if len(contents) < len(small):
            for message_id, size in zip(message_ids, sizes, strict=True):
                if 0 < size <= _ALONG_BYTES and message_id not in contents:
                    yield message_id, size

    def _leave_out(self, consumer: MemberConsumer, message_ids: Sequence[int]) -> None:
        self._undelivered.expired(len(message_ids))
        self._not_granted([(consumer, message_ids)])

    def _loaded(self, round_: _Round) -> None:
        round_.is_loading = False
        self._go_on()

    def _go_on(self) -> None:
        while self._rounds and not self._rounds[0].is_loading:
            round_ = self._rounds.popleft()
            self._calls.open_count -= 1
            self._decide(round_)

    def _decide(self, round_: _Round) -> None:
        due = [its for its in round_.due if self._broker.serves(its[0].queue)]
        acquired: list[_Acquired] = []
        refused: list[tuple[MemberConsumer, int]] = []
        try:
            with self._store.batch(is_observed=False) as batch:
                for consumer, message_ids in due:
                    self._acquire(batch, consumer, message_ids, acquired, refused)
                batch.finish(partial(self._completed, acquired, round_.contents))
        except ENDED as error:
            self._calls.on_fatal(error)
            return
        except StoreError as error:
            _log.warning("nothing is handed out to members now: %s", error)
            again = partial(self._not_granted, due)
            self._broker.again(again)
            return
        self._calls.open_count += 1
        for consumer, message_id in refused:
            consumer.not_granted()
            self._undelivered.lost(consumer.queue, message_id)

    def _acquire(
        self,
        batch: Batch,
        consumer: MemberConsumer,
        message_ids: Sequence[int],
        acquired: list[_Acquired],
        refused: list[tuple[MemberConsumer, int]],
    ) -> None:
        """Acquire messages for one consumer, as far as they are to be had.

        A queue hands a message to one consumer at a time, so none is there twice.
        """
        queue, decisions = consumer.queue.name, consumer.peer.decisions

        def one(_index: int, message_id: int) -> list[RecordStep]:
            asked = records.message_acquired(0, queue, message_id, consumer.holder)
            return decisions.acquired(asked, None)

        holder = decisions.holder_of_free(consumer.holder)
        record = Record(Kind.ACQUIRED, 0, queue, holder=holder)
        steps, outcomes = batches.of_entries(batch.machine, message_ids, record, one)
        try:
            batch.take(steps)
        except StoreError as unwritable:
            outcomes = [outcome or unwritable for outcome in outcomes]
        if any(outcomes):
            for message_id, refusal in zip(message_ids, outcomes, strict=True):
                if refusal is not None:
                    _log.debug("message %d of %r: %s", message_id, queue, refusal)
                    refused.append((consumer, message_id))
            message_ids = [*compress(message_ids, map(not_, outcomes))]
        if message_ids:
            facts = columns_of(batch.machine.state.queues[queue].entries, message_ids)
            acquired.append((consumer, message_ids, facts))

    def _completed(
        self, acquired: list[_Acquired], contents: _Contents, error: StoreError | None
    ) -> None:
        """Bring the store's outcome from its thread to the loop's."""
        self._inbox.post(lambda _nothing: self._acquired(acquired, contents, error), None)

    def _acquired(
        self, acquired: list[_Acquired], contents: _Contents, error: StoreError | None
    ) -> None:
        self._calls.open_count -= 1
        if error is not None:
            self._calls.on_fatal(error)
            return
        runs_of_peer: dict[MemberConnection, list[GrantedRun]] = {}
        back: list[Due] = []
        for consumer, message_ids, facts in acquired:
            consumer.queue.held_elsewhere(message_ids)
            consumer.granted(len(message_ids))
            if consumer.is_gone:
                back.append((consumer, message_ids))
                continue
            along = [*map(contents.get if consumer.peer.has_room else _no_content, message_ids)]
            headers = [content and content[0] for content in along]
            bodies = [content and content[1] for content in along]
            run = GrantedRun(consumer.number, message_ids, facts, headers, bodies)
            runs_of_peer.setdefault(consumer.peer, []).append(run)
        for peer, runs in runs_of_peer.items():
            _say(peer, runs)
        if back:
            self._give_back(back)

    def give_back_all_but(self, member: str, kept: Mapping[str, frozenset[int]]) -> None:
        """Release what a member holds in its own name and does not know of.

        Args:
            member: Name of the member.
            kept: By queue, what it knows of.
        """
        with self._store.batch() as batch:
            steps = held_by(batch, member, failed=False, but=kept)
            batch.take(steps)
        if steps:
            text = "%d messages that were on their way to member %r wait again"
            _log.info(text, messages_in(steps), member)

    def give_back_unknown(
        self,
        peer: MemberConnection,
        name: str,
        holder: str,
        held: frozenset[int] = frozenset(),
        then: Callable[[], None] = _nothing,
        *,
        failed: bool = False,
    ) -> None:
        """Release what a subscription's holder has and does not know of.

        It was never told to the member.

        `then` is called when that waits on its queue again, with all that was given back before.
        The observer of the store is told of it first, and both come by the same inbox.

        Args:
            peer: The member's connection.
            name: Of the queue that the subscription is to.
            holder: What the member calls who holds its messages.
            held: What it knows of.
            then: See above; on the loop's thread, unless the store has ended.
            failed: What is given back was delivered, and that failed.
        """
        names = holders_of(peer.member, holder)
        with self._store.batch() as batch:
            queue = batch.machine.state.queues.get(name)
            unknown = [
                (message_id, entry)
                for message_id, entry in (() if queue is None else queue.entries.marked())
                if entry.acquired_by in names and message_id not in held
            ]
            batch.take(given_back_steps(batch, name, unknown, failed=failed))
            batch.finish(partial(self._given_back, then))

    def _given_back(self, then: Callable[[], None], error: StoreError | None) -> None:
        """Go on, on the loop's thread, when the store has released the messages."""
        if error is None:
            self._inbox.post(lambda _nothing: then(), None)

    def end_with_queue(self, consumer: MemberConsumer) -> None:
        """Give back what the holder of a consumer has of a queue that is deleted.

        Given back here, so that no release of the member's comes between that.
        """
        try:
            self.give_back_unknown(consumer.peer, consumer.queue.name, consumer.holder, failed=True)
        except NotNow as error:  # it goes as whoever holds it
            _log.info("queue %r is deleted: %s", consumer.queue.name, error)
        except StoreError as error:
            self._calls.on_fatal(error)

    def _give_back(self, due: Sequence[Due]) -> None:
        """Release messages whose consumer is gone, and which were never delivered."""
        try:
            with self._store.batch() as batch:
                for consumer, message_ids in due:
                    name = consumer.queue.name
                    names = holders_of(consumer.peer.member, consumer.holder)
                    queue = batch.machine.state.queues.get(name)
                    held = [
                        (message_id, entry)
                        for message_id in message_ids
                        if (entry := queue and queue.entries.get(message_id))
                        and entry.acquired_by in names
                    ]
                    batch.take(given_back_steps(batch, name, held, failed=False))
        except NotNow:
            again = partial(self._give_back, due)
            self._broker.again(again)
        except StoreError as error:
            self._calls.on_fatal(error)


def _no_content(_message_id: int) -> None:
    """Send nothing along: the member asks for it."""


def holders_of(member: str, holder: str) -> set[str]:
    """Name a member's holder in all the ways that the store may know it by."""
    names = {f"{member}/{holder}"}
    if holder.startswith("["):  # a link, which is one and the same wherever it is attached
        names.add(holder)
    return names


def hold_what_is_acquired(broker: Broker, state: State) -> None:
    """Hold at a new broker's queues what members hold in the store's state."""
    for name, queue in state.queues.items():
        dispatch = broker.queues[name]
        for message_id, entry in queue.entries.marked():
            if entry.acquired_by is not None and dispatch.waits(message_id):
                dispatch.held_elsewhere((message_id,))
                if dispatch.groups is not None:
                    dispatch.groups.held(message_id, entry.acquired_by)


def _say(peer: MemberConnection, runs: Sequence[GrantedRun]) -> None:
    """Tell a member what it is granted, in frames that are not too large."""
    frame, size = list[tuple[Any, ...]](), 0
    for more, part in chain.from_iterable(run.parts(_FRAME_BYTES) for run in runs):
        if frame and size + more > _FRAME_BYTES:
            peer.say(wire.GRANTED, frame)
            frame, size = [], 0
        frame.append(part.packed())
        size += more
    peer.say(wire.GRANTED, frame)
