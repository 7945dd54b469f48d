"""A view of a root at one moment is cut into parts, which are read one by one, anywhere.

A part has the moment in it, which never changes (`moment`), and not the root: so parts that are
read at different times, while a store, a compaction and a trim go on, are of the same moment all
the same, and no row is there twice, or missing.

- A row of `message_history` is a row of history or of the journal: a part has some of their files.
- A row of `queue_messages` that is plain (`plain_entries`) is cut as the table that has most of it:
  by files of `state`, which are its blocks, or with content by those of history and journal. The
  last part has all other rows, too.

Other views are not cut: they count, or join what has no message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sparkstore.embedded.moment import Moment
from sparkstore.sql.queries import CONTENT
from sparkstore.tables.snapshot import FileStats

PARTED = frozenset({"queue_messages", "message_history"})
"""The views that can be cut."""
PART_ROWS = 500_000
"""A part is closed when its files have so many rows. A whole block of `state` has 262,144."""


class PlainRows(NamedTuple):
    """Where a part of `queue_messages` has its plain rows from.

    Attributes:
        entries: Files of `state`, if no content is asked for.
        history: Files with content, if it is.
        journal: The same of the journal.
        has_rest: The part has all rows that are not plain, too, and those of the tail without
            content.
        ids: The rows are of messages between these; None: of any.
    """

    entries: list[FileStats]
    history: list[FileStats]
    journal: list[FileStats]
    has_rest: bool
    ids: tuple[int, int] | None = None


class ViewPart(NamedTuple):
    """Some rows of a view.

    Attributes:
        view: One of `PARTED`.
        moment: The tables, without files that are not needed for these rows.
        rows: Which rows; None: all that the view has of this moment.
    """

    view: str
    moment: Moment
    rows: PlainRows | None = None


def parts_of(
    view: str, moment: Moment, columns: Collection[str], *, rows: int = PART_ROWS
) -> list[ViewPart]:
    """Cut a view, of which some columns are asked for; there is at least one part.

    Args:
        view: One of `PARTED`.
        moment: Of a root in which no records are missing.
        columns: The columns that are asked for.
        rows: What a part has at least, but for the last one.
    """
    if view == "queue_messages":
        return [*_parts_of_messages(moment, rows, has_content=not CONTENT.isdisjoint(columns))]
    moment = moment._replace(state=_meta(moment))
    groups = _grouped(moment.history, rows)
    return [
        *(ViewPart(view, moment._replace(journal=[], history=files)) for files in groups[:-1]),
        ViewPart(view, moment._replace(history=groups[-1])),
    ]


def _parts_of_messages(moment: Moment, rows: int, *, has_content: bool) -> Iterator[ViewPart]:
    journal = _after(moment.journal, moment.folded)
    moved = moment.history if has_content else _after(moment.history, moment.folded)
    moment = moment._replace(journal=journal, history=moved)
    ours = _after(journal, moment.in_history)
    cut = [*moved, *ours] if has_content else _entry_files(moment)
    *groups, last = _grouped(cut, rows)
    for files in (*groups, last):
        plain = PlainRows(
            [] if has_content else files,
            [file for file in files if has_content and file not in ours],
            [file for file in files if has_content and file in ours],
            has_rest=files is last,
        )
        whole = ViewPart("queue_messages", moment, plain)
        yield whole if plain.has_rest else _narrowed(whole, plain)


def _narrowed(part: ViewPart, rows: PlainRows) -> ViewPart:
    """Leave out entries of other blocks, or with other positions than content that is read.

    What is read has no entry of the tail, if it ends at P: then no message has another id than
    those of the entries.
    """
    moment, entries = part.moment, rows.entries
    if content := [*rows.history, *rows.journal]:
        least = min(file.positions[0] for file in content)
        largest = max(file.positions[1] for file in content)
        entries = _after(_entry_files(moment), least - 1)
        entries = [file for file in entries if file.positions[0] <= largest]
    if entries and not _after(content, moment.folded):
        ids = [message_id for file in entries for message_id in file.message_ids]
        rows = rows._replace(ids=(min(ids), max(ids)))
    state = [*_meta(moment), *entries]
    return part._replace(moment=moment._replace(state=state), rows=rows)


def _grouped(files: Iterable[FileStats], rows: int) -> list[list[FileStats]]:
    """Put files together until they have so many rows; at least one group, even of nothing."""
    groups, count = [list[FileStats]()], 0
    for file in files:
        if count >= rows:
            groups.append([])
            count = 0
        groups[-1].append(file)
        count += rows if file.row_count < 0 else file.row_count
    return groups


def _after(files: Iterable[FileStats], position: int) -> list[FileStats]:
    return [file for file in files if file.positions[1] > position]


def _meta(moment: Moment) -> list[FileStats]:
    return [file for file in moment.state if file.partition == "meta"]


def _entry_files(moment: Moment) -> list[FileStats]:
    return [file for file in moment.state if file.partition == "entry"]
