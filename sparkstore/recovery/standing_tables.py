"""Find out once, of tables that stand still, what each query of a view would look up.

The text of a view (`sparkstore.sql`) names no version and no position, so a query looks for P, for
the end of history, for what fences the journal, and for content that came on another queue. Of the
files of one moment that is known before: as numbers, as rows, or as parts without rows. Spark then
plans and reads a third of the tables (`views.views`).

Decision: DuckDB is told P and the end of history alone. With the rest it took as long as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparkstore.core.records import Kind
from sparkstore.sql.queries import WITHOUT_JOURNAL
from sparkstore.tables.schema import ROW, STATE
from sparkstore.tables.snapshot import FileStats, columns_of, last_position, read_files

_META = columns_of(STATE, ("epoch", "position"))
_SEGMENT = columns_of(STATE, ("segment",))
_OPENED = columns_of(ROW, ("epoch", "position", "kind", "message_id"))
_NAMED = columns_of(ROW, ("position", "kind", "protocol"))
_MOST_OPENINGS = 100
"""With more of them a query looks for itself."""


class StandingTables(NamedTuple):
    """The files of the three tables at one moment.

    Attributes:
        state: Of the fold.
        journal: Of the journal, looked up after the state.
        history: Of history, looked up last.
        openings: Epoch and position of the last `opened` of the fold; empty without a fold.
        folded: P, where the fold stands.
        in_history: The last position of history.
    """

    state: list[FileStats]
    journal: list[FileStats]
    history: list[FileStats]
    openings: list[tuple[int, int]]
    folded: int
    in_history: int

    def values(self, names: Mapping[str, str], *, has_contents: bool) -> dict[str, str]:
        """Return values for the text of a view.

        Args:
            names: What the tables are called there.
            has_contents: Whether the view has the content of messages.

        Raises:
            CorruptData: A file is gone.
            OSError, ArrowException: One cannot be read.
        """
        known = {"folded": str(self.folded), "inhistory": str(self.in_history)}
        if self.in_history <= self.folded:
            known["newhistory"] = f"(SELECT * FROM {names['history']} WHERE false)"  # noqa: S608
        if last_position(self.journal) <= self.in_history:
            known |= WITHOUT_JOURNAL
        if has_contents and not self._has_content_elsewhere():
            known["contents_elsewhere"] = ""
        openings = self.openings + self._later_openings()
        if 0 < len(openings) <= _MOST_OPENINGS:
            rows = ", ".join(f"({epoch}, {position})" for epoch, position in openings)
            opened = f"(VALUES {rows}) AS opened(epoch, position)"
            known["epochs.sql"] = f"SELECT epoch, position FROM {opened}"  # noqa: S608  # numbers
        return known

    def _later_openings(self) -> list[tuple[int, int]]:
        """Read the journal's `opened` after P, as `sql/fold/epochs.sql` does."""
        after = (file for file in self.journal if file.positions[1] > self.folded)
        is_opened = ds.field("message_id").is_null() & (ds.field("kind") == Kind.OPENED.column)
        rows = read_files(after, _OPENED, is_opened & (ds.field("position") > self.folded))
        return _openings_in(rows)

    def _has_content_elsewhere(self) -> bool:
        """Tell whether a message may be on a queue that its content did not come on.

        A row of a fenced writer counts, too: then a query looks, and finds nothing.
        """
        entries = (file for file in self.state if file.partition == "entry")
        segment = ds.field("segment")
        if read_files(entries, _SEGMENT, (segment != 1) | segment.is_null()).num_rows:
            return True
        after = (file for file in self.history + self.journal if file.positions[1] > self.folded)
        named = (ds.field("kind") == Kind.ENQUEUED.column) & ds.field("protocol").is_null()
        rows = read_files(after, _NAMED, named & (ds.field("position") > self.folded))
        return bool(rows.num_rows)


def standing_tables(
    state: list[FileStats], journal: list[FileStats], history: list[FileStats]
) -> StandingTables:
    """Read what the files of one moment say of themselves.

    Raises:
        CorruptData: A file is gone.
        OSError, ArrowException: One cannot be read.
    """
    meta = read_files((file for file in state if file.partition == "meta"), _META)
    folded = pc.max(meta["position"]).as_py() or 0
    in_history = last_position(history)
    return StandingTables(state, journal, history, _openings_in(meta), folded, in_history)


def _openings_in(rows: pa.Table) -> list[tuple[int, int]]:
    """List epoch and position of some rows."""
    return [*zip(rows["epoch"].to_pylist(), rows["position"].to_pylist(), strict=True)]
