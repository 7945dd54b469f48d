"""Roots on disk for tests, all three tables written by deltalake."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from sparkstore.core import fold
from sparkstore.tables.root import Root, open_or_create_root
from sparkstore.tables.rows import to_table
from sparkstore.tables.schema import BLOCK_IDS, ROW, STATE
from tests.support.histories.strategies import Layers, Row, fold_rows

JOURNAL_APP = "sparkstore.journal"


def rows_table(rows: Sequence[Row], segment: int) -> pa.Table:
    """Rows of one segment, whatever their positions and epochs."""
    if not rows:
        return ROW.empty_table()
    table = to_table([row.record for row in rows], first_position=1, epoch=1, segment=segment)
    for name in ("position", "epoch"):
        column = pa.array([getattr(row, name) for row in rows], pa.int64())
        table = table.set_column(table.schema.get_field_index(name), ROW.field(name), column)
    return table


def state_table(state: fold.State, *, segment: int = 0, history_start: int = 1) -> pa.Table:
    """The rows of `state` that stand for a fold, in no particular order."""
    rows: list[dict[str, object]] = [
        {
            "part": "meta",
            "position": state.position,
            "epoch": state.epoch,
            "segment": segment,
            "message_id": state.next_message_id,
            "history_start": history_start,
        }
    ]
    for name, queue in state.queues.items():
        rows += [
            {"part": "entry", "block": message_id // BLOCK_IDS}
            | {"queue": name, "message_id": message_id}
            | {field: getattr(entry, field) for field in fold.Entry.__dataclass_fields__}
            for message_id, entry in reversed([*queue.entries.items()])
        ]
        rows.append(
            {"part": "wiring", "queue": name, "position": queue.position, "detail": queue.detail}
        )
    named = [*state.configured.items(), *(((None, key), d) for key, d in state.prepared.items())]
    for (category, key), detail in named:
        rows.append({"part": "wiring", "exchange": category, "binding_key": key, "detail": detail})
    for name, member in state.members.items():
        refusals = json.dumps({str(request): why for request, why in member.refusals.items()})
        rows.append(
            {"part": "member", "member": name, "request": member.last_request, "detail": refusals}
        )
    for message_id, position in state.staged.items():
        rows.append({"part": "staged", "message_id": message_id, "position": position})
    for text, link in state.links.items():
        rows += link_rows(text, link)
    for exchange, detail in state.exchanges.items():
        rows.append({"part": "wiring", "exchange": exchange, "detail": detail})
    for binding, detail in state.bindings.items():
        rows.append({"part": "wiring", **binding._asdict(), "detail": detail})
    return pa.Table.from_pylist(rows, STATE)


def link_rows(text: str, link: fold.LinkState) -> list[dict[str, object]]:
    """The rows of `state` that stand for a link and its deliveries."""
    place: dict[str, object] = {"exchange": text}
    terminus = {"position": link.position, "at": link.detached_at, "detail": link.detail}
    return [
        place | {"part": "link"} | terminus,
        *(
            place | {"part": "delivery", "binding_key": tag.hex(), "detail": detail}
            for tag, detail in link.unsettled.items()
        ),
    ]


def append_journal(root: Root, rows: Sequence[Row], segment: int, number: int) -> None:
    """One commit of the journal, with the metadata of the real committer."""
    epoch = rows[-1].epoch
    write_deltalake(
        str(root.journal),
        rows_table(rows, segment),
        mode="append",
        commit_properties=CommitProperties(
            custom_metadata={
                "sparkstore.writer": f"{epoch:032x}",
                "sparkstore.epoch": str(epoch),
                "sparkstore.number": str(number),
                "sparkstore.first_position": str(rows[0].position),
                "sparkstore.last_position": str(rows[-1].position),
                "sparkstore.segment": str(segment),
            },
            app_transactions=[Transaction(JOURNAL_APP, (epoch << 40) + number)],
        ),
    )


def build_root(path: Path, layers: Layers, *, commit_records: int = 16) -> Root:
    """A root that holds what `layers` says: journal in small commits, history by segment."""
    root = open_or_create_root(path)
    number = 0
    for (segment, _epoch), group in groupby(
        layers.journal_rows, key=lambda row: (layers.segment(row.position), row.epoch)
    ):
        rows = list(group)
        for start in range(0, len(rows), commit_records):
            number += 1
            append_journal(root, rows[start : start + commit_records], segment, number)
    for segment, group in groupby(layers.history_rows, lambda row: layers.segment(row.position)):
        write_deltalake(str(root.history), rows_table(list(group), segment), mode="append")
    if layers.state_position:
        rows = layers.history.rows[: layers.state_position]
        table = state_table(fold_rows(rows), segment=layers.segment(layers.state_position))
        write_deltalake(str(root.state), _with_positions(table, rows), mode="append")
    return root


def _with_positions(state: pa.Table, rows: Sequence[Row]) -> pa.Table:
    """The rows of wiring with the positions that a job gives them, and the pure fold has not."""
    names = ("queue", "exchange", "binding_key")
    last = {tuple(getattr(row.record, name) for name in names): row.position for row in rows}
    found = state.to_pylist()
    for row in found:
        if row["part"] == "wiring" and row["position"] is None:
            row["position"] = last[tuple(row[name] for name in names)]
    return pa.Table.from_pylist(found, STATE)
