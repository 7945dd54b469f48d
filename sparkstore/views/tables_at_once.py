"""The tables as they are at one moment, for views that are asked once, at once.

A view that is kept is right whatever becomes of the tables, so it has each query look for P and for
all that follows from it. A command asks its views once, when they are made. For it the tables are
looked up here, and the text has their versions and what is known of them
(`recovery.standing_tables`): a query is planned in two thirds of the time, and runs in half.

Why it is right: a version of a table never changes. State is looked up first, then the journal, and
history last. What leaves the journal is in history by then (ARCHITECTURE: Rule 5), so every record
after P is in one of the two. The guard looks still, for a table that is damaged. The files of these
versions stay for `reader_grace_s`, an hour unless configured otherwise.
"""

from __future__ import annotations

from sparkstore.recovery.standing_tables import standing_tables
from sparkstore.tables.root import Root
from sparkstore.tables.snapshot import last_position, newest
from sparkstore.views.join_hints import hints_for
from sparkstore.views.spark_tables import table_names


def values_at_once(root: Root, *, has_contents: bool) -> dict[str, str]:
    """Return the values of a view's text for the newest versions: those of `hints`, and more.

    Args:
        root: The root whose tables are looked up.
        has_contents: Whether the view is `queue_messages`.

    Raises:
        CorruptData: A file of a table is gone.
        DeltaError, OSError, ArrowException: A table cannot be read.
    """
    state_version, state = newest(root.state)
    journal_version, journal = newest(root.journal)
    history_version, history = newest(root.history)
    versions = {"state": state_version, "journal": journal_version, "history": history_version}
    names = {
        name: f"{written} VERSION AS OF {versions[name]}"
        for name, written in table_names(root).items()
    }
    tables = standing_tables(state, journal, history)
    end = max(tables.in_history, last_position(journal), tables.folded)
    sizes = hints_for(state, tables.folded, end - tables.folded)
    return {**names, **sizes, **tables.values(names, has_contents=has_contents)}
