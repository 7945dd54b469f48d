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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import wall_us
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import ENDED, NotNow, StoreError
from broker_shim.service.members import given_back_step, held_by
from broker_shim.service.recovery_rows import shown
from broker_shim.store import protocol as wire
from broker_shim.store.delta import Batch, DeltaMessageStore
from broker_shim.store.interface import Content, Entry, StoredMessage
from broker_shim.store.reads import Loaded
from sparkstore.core import records
from sparkstore.core.fold import State
from sparkstore.core.records import Kind
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


Grant = tuple["MemberConsumer", int]
_Acquired = tuple["MemberConsumer", int, Entry]
_Contents = Mapping[int, Content]


@dataclass(slots=True)
class _Round:
    """The messages that one turn hands out.

    Attributes:
        due: Consumers and messages, in order.
        contents: Header and content of messages that were read for it, by id.
        is_loading: More is being read.
    """

    due: list[Grant]
    contents: dict[int, Content] = field(default_factory=dict)
    is_loading: bool = False


class Grants:
    """The messages on their way to members' consumers. On the loop's thread only."""

    def __init__(self, broker: Broker, store: DeltaMessageStore, inbox: Inbox) -> None:
        self._broker, self._store, self._inbox = broker, store, inbox
        self._calls, self._undelivered = broker.calls, broker.undelivered
        self._due: list[Grant] = []
        self._rounds: deque[_Round] = deque()

    def add(self, consumer: MemberConsumer, message_id: int) -> None:
        """The queue holds a message for a consumer: acquire it at the end of this turn."""
        self._due.append((consumer, message_id))

    def withdraw(self, consumer: MemberConsumer) -> None:
        """Let messages wait again that are not acquired for a consumer which is gone.

        So it is not acquired for nobody, and given back after what came later was handed out.
        """
        for due in (self._due, *(round_.due for round_ in self._rounds)):
            withdrawn = [message_id for whose, message_id in due if whose is consumer]
            due[:] = [grant for grant in due if grant[0] is not consumer]
            for message_id in withdrawn:
                self._not_granted(consumer, message_id)

    def _not_granted(self, consumer: MemberConsumer, message_id: int) -> None:
        """Let a message be on its queue as the store has it: another member may have taken it."""
        consumer.not_granted()
        self._undelivered.not_taken(consumer.queue, message_id)

    def flush(self) -> None:
        """The end of a turn."""
        if not self._due:
            return
        round_, self._due = _Round(self._due), []
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
        """Choose what is to be read; what is too old is left out, as by any delivery."""
        wanted, room = [], _FRAME_BYTES
        now_us, expired = wall_us(), list[Grant]()
        at_hand = self._store.at_hand([message_id for _consumer, message_id in round_.due])
        for consumer, message_id in round_.due:
            entry = self._calls.entry(consumer.queue.name, message_id)
            if entry is not None and entry.expires_at is not None and entry.expires_at <= now_us:
                expired.append((consumer, message_id))
                continue
            message_bytes = room + 1 if entry is None else entry.message_bytes
            is_small = message_bytes <= min(_ALONG_BYTES, room)
            if is_small and consumer.peer.has_room and message_id not in at_hand:
                wanted.append(message_id)
                room -= message_bytes
        if expired:
            self._leave_out(round_, expired)
        return wanted

    def _leave_out(self, round_: _Round, expired: Sequence[Grant]) -> None:
        gone = {*expired}
        round_.due = [grant for grant in round_.due if grant not in gone]
        self._undelivered.expired(len(expired))
        for consumer, message_id in expired:
            self._not_granted(consumer, message_id)

    def _loaded(self, round_: _Round) -> None:
        round_.is_loading = False
        self._go_on()

    def _go_on(self) -> None:
        while self._rounds and not self._rounds[0].is_loading:
            round_ = self._rounds.popleft()
            self._calls.open_count -= 1
            self._decide(round_)

    def _decide(self, round_: _Round) -> None:
        due = [grant for grant in round_.due if self._broker.serves(grant[0].queue)]
        acquired: list[_Acquired] = []
        refused: list[Grant] = []
        try:
            with self._store.batch(is_observed=False) as batch:
                for consumer, message_ids in _by_consumer(due).items():
                    self._acquire(batch, consumer, message_ids, acquired, refused)
                batch.finish(partial(self._completed, acquired, round_.contents))
        except ENDED as error:
            self._calls.on_fatal(error)
            return
        except StoreError as error:
            _log.warning("nothing is handed out to members now: %s", error)
            again = partial(self._wait_again, due)
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
        refused: list[Grant],
    ) -> None:
        """Acquire messages for one consumer, as far as they are to be had.

        A queue hands a message to one consumer at a time, so none is there twice.
        """
        queue, decisions = consumer.queue.name, consumer.peer.decisions

        def one(_index: int, message_id: int) -> list[RecordStep]:
            asked = records.message_acquired(0, queue, message_id, consumer.holder)
            return decisions.acquired(asked, None)

        holder = decisions.holder_of_free(consumer.holder)
        steps, outcomes = batches.of_entries(
            batch.machine, message_ids, queue, holder, Kind.ACQUIRED, one
        )
        try:
            batch.take(steps)
        except StoreError as unwritable:
            outcomes = [outcome or unwritable for outcome in outcomes]
        for message_id, refusal in zip(message_ids, outcomes, strict=True):
            if refusal is None:
                entry = batch.machine.entry(queue, message_id)
                acquired.append((consumer, message_id, entry))
            else:
                _log.debug("message %d of %r: %s", message_id, queue, refusal)
                refused.append((consumer, message_id))

    def _wait_again(self, due: Sequence[Grant]) -> None:
        for consumer, message_id in due:
            self._not_granted(consumer, message_id)

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
        rows_of_peer: dict[MemberConnection, list[tuple[Any, ...]]] = {}
        back: list[Grant] = []
        small = [
            message_id
            for consumer, message_id, entry in acquired
            if entry.message_bytes <= _ALONG_BYTES and consumer.peer.has_room
        ]
        at_hand = self._store.at_hand(small)
        for consumer, message_id, entry in acquired:
            consumer.queue.held_elsewhere(message_id)
            consumer.granted()
            if consumer.is_gone:
                back.append((consumer, message_id))
            else:
                content = contents.get(message_id)
                if content is None and consumer.peer.has_room:
                    content = at_hand.get(message_id)
                row = self._row(consumer, message_id, entry, content)
                rows_of_peer.setdefault(consumer.peer, []).append(row)
        for peer, rows in rows_of_peer.items():
            for part in _frames(rows):
                peer.say(wire.GRANTS, part)
        if back:
            self._give_back(back)

    def _row(
        self,
        consumer: MemberConsumer,
        message_id: int,
        entry: Entry,
        content: Content | None,
    ) -> tuple[Any, ...]:
        return consumer.number, message_id, shown(entry), *(content or (None, None))

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
            _log.info(text, len(steps), member)

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
            steps = [
                given_back_step(batch, name, message_id, entry, failed=failed)
                for message_id, entry in (() if queue is None else queue.entries.marked())
                if entry.acquired_by in names and message_id not in held
            ]
            batch.take(steps)
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

    def _give_back(self, grants: Sequence[Grant]) -> None:
        """Release messages whose consumer is gone, and which were never delivered."""
        try:
            with self._store.batch() as batch:
                for consumer, message_id in grants:
                    queue = consumer.queue.name
                    names = holders_of(consumer.peer.member, consumer.holder)
                    served = batch.machine.state.queues.get(queue)
                    entry = None if served is None else served.entries.get(message_id)
                    if entry is not None and entry.acquired_by in names:
                        step = given_back_step(batch, queue, message_id, entry, failed=False)
                        batch.take([step])
        except NotNow:
            again = partial(self._give_back, grants)
            self._broker.again(again)
        except StoreError as error:
            self._calls.on_fatal(error)


def _by_consumer(due: Sequence[Grant]) -> dict[MemberConsumer, list[int]]:
    """Sort what is handed out by who gets it, each in the order of the queue."""
    ids_of: dict[MemberConsumer, list[int]] = {}
    for consumer, message_id in due:
        ids_of.setdefault(consumer, []).append(message_id)
    return ids_of


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
                dispatch.held_elsewhere(message_id)
                if dispatch.groups is not None:
                    dispatch.groups.held(message_id, entry.acquired_by)


def _frames(rows: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Part rows into frames that are not too large."""
    parts: list[list[tuple[Any, ...]]] = [[]]
    size = 0
    for row in rows:
        row_bytes = 200 + len(row[4] or b"") + (0 if row[3] is None else row[3].header_bytes)
        if parts[-1] and size + row_bytes > _FRAME_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += row_bytes
    return parts
