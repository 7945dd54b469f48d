"""Carries out a bulk operation: ids in, requests of `MAX_IDS` out, one after the other.

Why a run that is cut off can be run again: what its requests did is true, each part whole. The next
run's choice does not find it any more (moved, purged), or finds it as it was asked for (requeued:
those that were last in the queue come last again). `replay` marks each copy with the message it is
of, and the choice leaves out what has a copy on the target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sparkstore.content.reader import ContentReader
from sparkstore.control.client import AdminClient
from sparkstore.core.records import MessageHeader
from sparkstore.errors import NotNow
from sparkstore.operations.bulk import MAX_IDS, TURN_IDS, Action, Answer, MessageDraft, Request

REPLAYED = "sparkstore.replayed"
"""Property of a message that `replay` put back: the id of the message that it is a copy of."""

_PUT_BYTES = 4 << 20
_SHOW_S = 1.0

Show = Callable[[Answer], None]


@dataclass(frozen=True, slots=True)
class Job:
    """The work to be done with each message of a queue.

    Attributes:
        action: What the broker, or the offline store, does with each message.
        queue: Where they are.
        to: The target of a move.
        operation: The name of it all in history; None: it has none.
    """

    action: Action
    queue: str
    to: str | None = None
    operation: str | None = None


def run(control: AdminClient, job: Job, message_ids: Iterable[int], show: Show) -> Answer:
    """Carry out the job on each message, in the order of the ids.

    Args:
        control: The client that changes queues.
        job: The action, and the queues that it is about.
        message_ids: The messages to act on; they are asked for in parts of at most `MAX_IDS`.
        show: Called about once a second with the sum so far.

    Raises:
        Unavailable: It was cut off: the message says what was done; run it again.
        StoreError: The broker or the store refused, for the reasons of `AdminClient.run`.
    """

    def answers() -> Iterator[Answer]:
        left = iter(message_ids)
        while batch := tuple(islice(left, MAX_IDS)):
            answer = control.run(Request(job.action, job.queue, batch, job.to, job.operation))
            yield answer
            if answer.full:  # what comes next would overtake those that stay
                yield Answer(full=sum(1 for _ in left))
                return

    return _summed(answers(), show)


class PutClient(Protocol):
    """The part of `AdminClient` that a replay needs."""

    def put(self, queue: str, messages: Sequence[MessageDraft]) -> Answer:
        """Put new messages on a queue, all or none."""


def replay(
    control: PutClient,
    reader: ContentReader,
    to: str,
    message_ids: Iterable[int],
    show: Show,
) -> Answer:
    """Put copies of messages that history holds on a queue, under new ids.

    Decision: a copy has no expiry but that of the queue it is put on. That of the message itself
    is nearly always over, and whoever replays it wants it all the same.

    Args:
        control: The client that changes queues.
        reader: The reader of the content.
        to: Where the copies go.
        message_ids: Ids of the messages.
        show: Called with the sum so far, as in `run`.

    Raises:
        CorruptData: Content is not whole.
        StoreError: The broker or the store refused, for the reasons of `AdminClient.run`.
    """

    def answers() -> Iterator[Answer]:
        batch: list[MessageDraft] = []
        size = 0
        for message_id in message_ids:
            header, body = reader.read(message_id)
            copy = MessageDraft(_marked(header, message_id), body)
            length = len(body) + header.header_bytes
            if batch and (size + length > _PUT_BYTES or len(batch) == TURN_IDS):
                yield control.put(to, batch)
                batch, size = [], 0
            batch.append(copy)
            size += length
        if batch:
            yield control.put(to, batch)

    return _summed(answers(), show)


def _marked(header: MessageHeader, message_id: int) -> MessageHeader:
    kept = tuple(pair for pair in header.properties if pair[0] != REPLAYED)
    marked = (*kept, (REPLAYED, str(message_id)))
    return header._replace(properties=marked, expires_at=None)


def _summed(answers: Iterator[Answer], show: Show) -> Answer:
    total = Answer()
    shown_at = time.monotonic()
    try:
        for answer in answers:
            total = total.plus(answer)
            if time.monotonic() - shown_at >= _SHOW_S:
                shown_at = time.monotonic()
                show(total)
    except NotNow as reason:
        message = f"{reason} (so far {total.done} done, {total.left} left alone)"
        raise type(reason)(message) from reason
    return total
