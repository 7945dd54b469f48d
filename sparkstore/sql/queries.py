"""Queries are put together here: each view's steps and the files of `sql/`.

No engine is here: Spark's names of tables, or another engine's, are values that come in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from sparkstore.core.fold import WINDOW
from sparkstore.core.records import MessageHeader
from sparkstore.queue_columns import sql_parts

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)

_ONCE = frozenset({"changes", "guard", "touched_links"})
"""Steps that are computed once in a query, however often they are named."""

_OF_ENTRY = {"header", "priority", "expires_at"}
"""Fields of a header that have another place in a view, or that its entry may change."""
CONTENT = frozenset({*MessageHeader._fields, "header", "body"}) - {"priority", "expires_at"}
"""The columns of `queue_messages` that come from a message's content, and not from its entry."""
_CONTENT_COLUMNS = ", ".join(f"`{name}`" for name in MessageHeader._fields if name not in _OF_ENTRY)
_END_COLUMNS = "outcome, ended_position, ended_at, ended_by, end_detail,"

_WRITTEN_AT = {
    "job_runs": "unix_micros(began_at) + CAST(seconds * 1000000 AS BIGINT)",
    "findings": "unix_micros(found_at)",
}
"""When a row of a job's table was written: of a run, at its end."""

GUARD = "(SELECT whole FROM guard)"
_DEFAULTS = {
    "touchedhint": "",
    "entryhint": "",
    "least": "0",
    "entriesguard": GUARD,
    "membersguard": GUARD,
    "eventsguard": "true",
    "contentsguard": "true",
    "window": str(WINDOW),
    "epochs": "epochs",
    "contentcolumns": _CONTENT_COLUMNS,
    "now": "current_timestamp()",
}
"""Hints to the optimiser, which whoever knows sizes fills in (`join_hints`), and where the guard
stands: once in a query, since all of it reads each table at one version."""

CALLED = {
    "fold_tail": "tail",
    "counted": "changes",
    "no_destroyed_queue": "destroyed_queues",
    "no_ended_delivery": "ended_deliveries",
}
"""What a step is called by those that name it, if not by its file."""

_TAIL = ("epochs", "tail", "changes", "guard")
_ENTRIES = ("destroyed_queues", "folded", "entries")
_WIRING = ("wiring_changes", "wiring")
_MEMBERS = ("last_requests", "refusals", "member_state")
_LINKS = ("touched_links", "delivered", "link_state", "link_deliveries")
STEPS_OF_OTHERS = (*_TAIL, *_MEMBERS, "staged_content", "staged", *_LINKS)
"""With these, what is neither entry nor wiring can be named: members, staged messages, links."""

VIEWS: Mapping[str, tuple[str, ...]] = {
    "queues": (*_TAIL, *_ENTRIES, *_WIRING),
    "queue_messages": (*_TAIL, *_ENTRIES, "events"),
    "messages": (*_TAIL, *_ENTRIES, "events", "departures"),
    "message_history": (*_TAIL, "events"),
    "bindings": (*_TAIL, *_WIRING),
    "configuration": (*_TAIL, *_WIRING),
    "transactions": (*_TAIL, *_WIRING),
    "members": (*_TAIL, *_ENTRIES, *_WIRING, *_MEMBERS),
    "links": (*_TAIL, *_ENTRIES, *_LINKS),
    "deliveries": (*_TAIL, *_ENTRIES, *_LINKS),
}
"""What users query, and the steps that each is made of, a step after those that it names."""

LOGS = ("job_runs", "findings")
"""Tables that jobs write: each is a view and a query in `sql/`, once a job has run."""

GUARDS: Mapping[str, Mapping[str, str]] = {
    "queues": {"entriesguard": "true"},
    "message_history": {"eventsguard": GUARD},
    "links": {"entriesguard": "true"},
    "deliveries": {"entriesguard": "true"},
    "members": {"entriesguard": "true"},
}
"""Where the guard stands, if not where `text` puts it: the scans of wiring, of links
and of deliveries have it always."""


WITHOUT_JOURNAL: Mapping[str, str] = {"tail_of_journal": "", "events_of_journal": ""}
"""Values where history has all there is."""


def as_of_values(
    values: Mapping[str, str],
    position: int,
    at: int,
    *,
    folded: int,
    from_nothing: bool,
    is_in_history: bool,
) -> dict[str, str]:
    """Change the values of a view's text so that it says how all was as of a position.

    Args:
        values: Names of tables; that of `state` is of a version that is not after the position.
        position: The last record that counts.
        at: What `now` is, UTC µs.
        folded: P of that version of `state`.
        from_nothing: No version of `state` serves: everything before the position is folded.
        is_in_history: History has all up to the position, so the journal is not asked.
    """
    until = f"(SELECT * FROM {{}} WHERE position <= {position})"  # noqa: S608  # a number
    nothing = "(SELECT * FROM {} WHERE false)"
    return {
        **values,
        "state": nothing.format(values["state"]) if from_nothing else values["state"],
        "history": until.format(values["history"]),
        "journal": (nothing if is_in_history else until).format(values["journal"]),
        "now": f"timestamp_micros({at})",
        "folded": str(folded),
        **({"inhistory": str(position), **WITHOUT_JOURNAL} if is_in_history else {}),
    }


def log_as_of(log: str, table: str, at: int) -> str:
    """Narrow `job_runs` or `findings` to what it had at a time, UTC µs."""
    return f"(SELECT * FROM {table} WHERE {_WRITTEN_AT[log]} <= {at})"  # noqa: S608  # ours


def view_text(view: str, values: Mapping[str, str]) -> str:
    """The text of one view; `values` are names of tables, and hints.

    Decision: content is no step of `queue_messages`, but a sub-query beside its steps. Spark 4.2
    takes no predicate below a WITH of which a step is computed once (`text`), so one
    on a queue or an id would never get to the files of history.

    Both sides of the join have a guard, unless entries are sent to every task: that is done before
    any content is read. Else Spark may find content empty first (predicates reach it, and what is
    in a gap is not there), and then it never looks at the entries.
    """
    if view == "messages":
        return _messages_text(values)
    if view != "queue_messages":
        return text(view, VIEWS[view], values)
    inner = {**values, "events": _events_alone(values, guard="true")}
    entries = text("every_entry", (*_TAIL, *_ENTRIES), values)
    if not values.get("entryhint"):
        inner["contentsguard"] = guard_alone(values)
    contents = statement("contents", inner)
    return statement(view, {**inner, "entries": entries, "contents": contents})


def departed_text(values: Mapping[str, str]) -> str:
    """Write the query for messages that left a queue and live on nowhere; `values` as of a view."""
    events = _events_alone(values, guard=guard_alone(values))
    return statement(
        "departed_messages", {**values, "events": events, "messages": _messages_text(values)}
    )


def _messages_text(values: Mapping[str, str]) -> str:
    """Write the query for all messages: sub-queries beside each other, as in `view_text`.

    Each scan of events has the guard, since Spark leaves out one side of a join if it finds the
    other empty.
    """
    inner = {**values, "events": _events_alone(values, guard=guard_alone(values))}
    inner["entries"] = text("every_entry", (*_TAIL, *_ENTRIES), values)
    return statement("messages", {**inner, "departures": statement("departures", inner)})


def _events_alone(values: Mapping[str, str], *, guard: str) -> str:
    epochs = f"({statement('epochs', values)})"
    return f"({statement('events', {**values, 'eventsguard': guard, 'epochs': epochs})})"


def guard_alone(values: Mapping[str, str]) -> str:
    """Return the guard as a sub-query that names no step of the query around it.

    The scan of events in `departed_messages` cannot share the guard of the steps around it: with it
    there, Spark 4.2 reported a gap where none is.
    """
    return f"({text('guard', ('epochs', 'tail', 'counted'), values)})"


def text(query: str, steps: Sequence[str], values: Mapping[str, str]) -> str:
    """The query of this name in `sql/`, after the steps that it and they name, one file each.

    `{placeholders}` in them are filled in from `values`.

    Decision: a step in `_ONCE` gets a condition that is always true and not deterministic. Spark
    writes a deterministic step out at each place that names it; `queues` was 240 operators and 40
    scans, and took 16 s to plan. One that is not deterministic is computed once, behind a
    shuffle, and what it computed is used again. So these steps are small beside what they are
    made of: a row for each entry, not for each record, and never a body. Of a step that names
    another of them, all columns must be needed always: Spark 4.2 leaves an invalid plan behind
    when it takes a column away there.

    Raises:
        KeyError: A placeholder has no value: a bug.
    """
    named = ",\n".join(f"{CALLED.get(step, step)} AS (\n{_step(step, values)})" for step in steps)
    return f"WITH {named}\n{_filled_in(query, values)}"


def statement(name: str, values: Mapping[str, str]) -> str:
    """The statement of this name in `sql/`, filled in."""
    return _filled_in(name, values)


def _step(name: str, values: Mapping[str, str]) -> str:
    written = _filled_in(name, values)
    if name not in _ONCE:
        return written
    return f"SELECT * FROM (\n{written}) WHERE rand() >= 0\n"  # noqa: S608


@cache
def _files() -> Mapping[str, Traversable]:
    """Every query by its name, whichever folder of `sql/` it is in."""
    folders = [item for item in files("sparkstore").joinpath("sql").iterdir() if item.is_dir()]
    every = (file for item in folders for file in item.iterdir())
    return {file.name[:-4]: file for file in every if file.name.endswith(".sql")}


def _filled_in(name: str, values: Mapping[str, str]) -> str:
    """Fill in a file, without its comments: a catalog keeps 32,700 characters of a view.

    A placeholder without a value is another file: a part that two have in common, or that finds
    nothing where more is known. Whoever knows what a step finds gives its text as a value by the
    name of its file (`epochs.sql`).
    """
    values = {"endcolumns": _END_COLUMNS if name == "messages" else "", **values}
    written = values.get(f"{name}.sql")
    if written is None:
        written = _COMMENT.sub("", _files()[name].read_text(encoding="utf-8"))
    known = _DEFAULTS | _found_by_query(values) | dict(values)

    parts = sql_parts() if name == "queues" else {}

    def value(match: re.Match[str]) -> str:
        part = match[1]
        if part in parts:
            return _PLACEHOLDER.sub(value, parts[part])
        return known[part] if part in known else _filled_in(part, values)

    return _PLACEHOLDER.sub(value, written)


def _found_by_query(values: Mapping[str, str]) -> dict[str, str]:
    """Values that a query finds out, if nobody knows them: P, and where history ends."""
    state, history = values.get("state"), values.get("history")
    return {
        "folded": f"coalesce((SELECT max(position) FROM {state} WHERE part = 'meta'), 0)",  # noqa: S608
        "inhistory": f"coalesce((SELECT max(position) FROM {history}), 0)",  # noqa: S608
        "newhistory": f"{history}",
    }
