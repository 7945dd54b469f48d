"""Many histories of chance in one root, each with names and ids of its own.

A query over the views takes seconds however few rows there are, so dozens of histories are told to
one root at once: what one of them does to its queues, messages, links and members is as if it were
alone. Only what a root has once (positions, epochs, the ids that are reserved) is shared.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from sparkstore.core.link_records import link_key, link_text
from sparkstore.core.records import Kind, Record
from tests.support.histories.histories import LINKS, History, Layers, Row
from tests.support.histories.history_builder import STEPS, build_history

_IDS = 10_000
"""Ids and transactions of one history: so entries of two are in one block, or in two."""
_BURST = 8
"""At most so many records of one history come in a row."""


def drawn_history(chance: random.Random, max_steps: int) -> History:
    """A valid history of up to so many steps, each a record or a few."""
    return build_history(
        [
            (chance.randrange(len(STEPS)), chance.randrange(60), chance.randrange(60))
            for _ in range(chance.randint(1, max_steps))
        ]
    )


def drawn_layers(chance: random.Random, history: History) -> Layers:
    """A history, cut anywhere: what `state` and `history` hold of it, and what was trimmed."""
    state_position = chance.randint(0, history.last_position)
    segment_records = chance.choice([history.last_position // 10 + 3, 1_000])
    trimmed = chance.randint(0, state_position // segment_records) * segment_records
    return Layers(
        history,
        state_position,
        chance.randint(state_position, history.last_position),
        trimmed + 1,
        segment_records,
    )


def bundled(chance: random.Random, histories: Sequence[History]) -> History:
    """The histories beside each other, in bursts whose order is chance's."""
    bundle, epoch, reserved = History(), 0, 0
    left = dict.fromkeys(range(len(histories)), 0)
    while left:
        number = chance.choice([*left])
        history, start = histories[number], left[number]
        end = min(start + chance.randint(1, _BURST), history.last_position)
        for row in history.rows[start:end]:
            record, position = renamed(row.record, number), bundle.last_position + 1
            if record.kind is Kind.OPENED:
                moved = position - row.position
                bundle.ghosts += [
                    Row(ghost.position + moved, epoch, renamed(ghost.record, number))
                    for ghost in _ghosts_of(history, row)
                ]
                epoch += 1
            if record.kind is Kind.IDS_RESERVED:
                assert record.message_id is not None
                reserved = max(reserved, record.message_id)
                record = record._replace(message_id=reserved)
            bundle.rows.append(Row(position, epoch, record))
        left[number] = end
        if end == history.last_position:
            del left[number]
    return bundle


def _ghosts_of(history: History, opening: Row) -> list[Row]:
    """What the writer that this opening fenced wrote on, unheard."""
    fenced = history.rows[opening.position - 2].epoch if opening.position > 1 else 0
    return [ghost for ghost in history.ghosts if ghost.epoch == fenced]


def renamed(record: Record, number: int) -> Record:
    """The record in the history of this number: nothing that it names is another one's."""

    def own(name: str | None) -> str | None:
        return None if name is None else f"{name} {number}"

    def own_id(value: int | None) -> int | None:
        return None if value is None else value + number * _IDS

    holder = record.holder
    if holder in LINKS:
        key = link_key(holder)
        holder = link_text(key._replace(remote_container_id=f"{key.remote_container_id} {number}"))
    else:
        holder = own(holder)
    is_of_branch = record.kind in {Kind.PREPARED, Kind.COMMITTED, Kind.ROLLED_BACK}
    is_of_member = record.exchange == "sparkstore.member"
    return record._replace(
        binding_key=own(record.binding_key) if is_of_branch or is_of_member else record.binding_key,
        queue=own(record.queue),
        message_id=own_id(record.message_id),
        transaction=own_id(record.transaction),
        holder=holder,
        exchange=record.exchange if is_of_member else own(record.exchange),
        member=own(record.member),
    )
