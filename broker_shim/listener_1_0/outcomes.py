"""Outcomes of deliveries: what we say, and what a consumer said as the JSON that history keeps."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Modified,
    Rejected,
    Released,
)
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.listener_1_0.messages.annotations import encoded_annotations
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.runs import Place, Run
from sparkstore.core.annotations import MAX_ANNOTATIONS_BYTES, Annotations, annotations_of, merged

_log = logging.getLogger(__name__)

ACCEPTED, REJECTED, RELEASED, MODIFIED = Accepted(), Rejected(), Released(), Modified()
"""One object each: dispositions of the same object are the quickest to put together."""


_Mark = TypeVar("_Mark")


class DecidedRun(NamedTuple):
    """Deliveries that follow each other, about which their receiver decided one thing.

    Attributes:
        place: Where they are on the session.
        message_ids: The message of each.
    """

    place: Place
    message_ids: Sequence[int]

    def part(self, start: int, end: int) -> DecidedRun:
        """Return some of the deliveries."""
        if isinstance(self.place, Run):  # a run of one
            return self
        return DecidedRun((self.place[0] + start, end - start), self.message_ids[start:end])

    def parts(self, marks: Sequence[_Mark]) -> Iterator[tuple[_Mark, DecidedRun]]:
        """Cut it where what is said of neighbours differs; `marks` has an item for each message."""
        start = 0
        for mark, alike in groupby(marks):
            end = start + len([*alike])
            yield mark, self.part(start, end)
            start = end

    def singles(self) -> Iterator[tuple[int, Place]]:
        """Each message, with the place of its delivery."""
        for at, message_id in enumerate(self.message_ids):
            yield message_id, self.part(at, at + 1).place


def may_reject(link: ReceiverLink) -> bool:
    """Whether a sender's source allows for rejected (3.5.3).

    Most clients say nothing of outcomes, and take all.
    """
    remote = link.remote.source
    outcomes = None if remote is None else remote.outcomes
    return not outcomes or Rejected.DESCRIPTOR in outcomes


def rejection(outcome: Rejected) -> dict[str, str]:
    """The outcome of a rejected delivery, with the peer's reason if it gave one."""
    detail = {"outcome": "rejected"}
    error = outcome.error
    if error is not None:
        for name in ("condition", "description"):
            text = getattr(error, name)
            if text:
                detail[name] = str(text)
    return detail


def kept_of(calls: StoreCalls, queue: str, message_id: int, state: Modified) -> Annotations | None:
    """The annotations of an entry with those of an outcome; None if they stay as they are.

    They are as many as fit (`MAX_ANNOTATIONS_BYTES`), however often a message comes back: an
    outcome that says more than that counts without its annotations.
    """
    given = encoded_annotations(state.message_annotations)
    entry = calls.entry(queue, message_id) if given else None
    if entry is None:
        return None
    together = merged(entry.detail, given)
    if together is None:
        text = "message %d of %r: annotations over %d bytes are not kept"
        _log.debug(text, message_id, queue, MAX_ANNOTATIONS_BYTES)
    return None if together == annotations_of(entry.detail) else together
