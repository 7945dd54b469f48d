"""What became of each message on each queue, from the records that count, one after the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sparkstore.core.records import Kind
from tests.support.histories.histories import Row

Stays = dict[tuple[str, int], tuple[Any, ...]]
"""Position of the `enqueued`, outcome, position and time of the end, by whom, and its detail."""


def expected_stays(rows: Sequence[Row]) -> Stays:
    """Each message's last stay on each queue, as the view `messages` has it."""
    stays: Stays = {}
    for position, _epoch, record in rows:
        if record.kind is Kind.DESTROYED and record.queue is not None:
            for place, stay in stays.items():
                if place[0] == record.queue and stay[1] is None:
                    stays[place] = (stay[0], "queue destroyed", position, record.at, None, None)
            continue
        if record.queue is None or record.message_id is None:
            continue
        place = record.queue, record.message_id
        if record.kind is Kind.ENQUEUED:
            stays[place] = (position, None, None, None, None, None)
        elif record.kind is Kind.DEQUEUED:
            detail, by = record.detail, record.holder or record.member
            outcome = "accepted" if detail is None else json.loads(detail).get("outcome", "other")
            stays[place] = (stays[place][0], outcome, position, record.at, by, detail)
    return stays
