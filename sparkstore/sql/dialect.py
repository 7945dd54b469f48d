"""The text of the views, which is written for Spark, as DuckDB understands it. Pure.

Decision: one source of SQL, and this dialect: words that DuckDB writes otherwise (`_WORDS`), a few
whole phrases (`_PHRASES`), and functions of Spark that it lacks, as macros (`MACROS`), which
whoever types a query has as well. Rejected:

- sqlglot: loading it took 0.35 s of processor time and our text 0.19 s, each time, of the half
  second that an answer may take. `max_by` became a function that skips nulls: a message whose last
  holder is nobody would be held. `from_json` and `explode` were left as they are.
- The recovered state as Arrow tables under other views: the fold has no positions of bindings and
  configured objects, which the views tell; and each view would be written a second time.

A test compares the answers of both engines, column by column, over generated histories.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparkstore.queue_columns import Road, columns_of
from sparkstore.sql.queries import CALLED, VIEWS, statement

_WORDS = (
    (re.compile(r"/\*\+.*?\*/"), ""),
    (re.compile(r"`"), '"'),
    (re.compile(r"(?<![\w.\"])at\b(?!\")"), '"at"'),  # a word of DuckDB's
    (re.compile(r"\bLEFT (ANTI|SEMI) JOIN\b"), r"\1 JOIN"),
    (re.compile(r"<=>"), "IS NOT DISTINCT FROM"),
    (re.compile(r"\bmax_by\("), "arg_max_null("),  # Spark's tells a null of the last row
    (re.compile(r"\bstruct\("), "row("),
    (re.compile(r"\bcurrent_timestamp\(\)"), "now()"),
    (re.compile(r"\btimestampdiff\(SECOND,"), "date_sub('second',"),
    (re.compile(r"'array<string>'", re.IGNORECASE), """'["VARCHAR"]'"""),
    (re.compile(r"\(SELECT whole FROM guard\)"), "true"),
    (re.compile(r"\bparts\[2\]"), "parts[3]"),  # a list begins at 1
    (re.compile(r"\bparts\[1\]"), "parts[2]"),
    (re.compile(r"\bparts\[0\]"), "parts[1]"),
)

_MESSAGE_COLUMNS = {
    """transform_values(
    from_json(entry.detail, 'map<string,array<string>>'),
    (key, told) -> IF(
      told[0] = 'timestamp' AND told[1] RLIKE '^[0-9]+$' AND length(told[1]) < 15,
      CAST(timestamp_millis(CAST(told[1] AS BIGINT)) AS STRING),
      told[1]
    )
  ) AS annotations""": "annotations_told(entry.detail) AS annotations",
    """(
      SELECT unhex(array_join(transform(
        array_sort(collect_set(struct(piece.body_offset, hex(piece.body) AS digits))),
        piece -> piece.digits
      ), ''))
      FROM events AS piece
      WHERE piece.kind = 'content' AND piece.message_id = entry.message_id
    )""": "pieces.whole",
    "\n) AS entry": """
) AS entry
LEFT JOIN (
  SELECT message_id AS id, unhex(string_agg(digits, '' ORDER BY body_offset)) AS whole
  FROM (
    SELECT DISTINCT message_id, body_offset, hex(body) AS digits
    FROM events
    WHERE kind = 'content'
  )
  GROUP BY message_id
) AS pieces ON pieces.id = entry.message_id""",
    "    pieces.whole\n  ) AS body": "    pieces.whole, CAST('' AS BLOB)\n  ) AS body",  # of none
}
_PHRASES: Mapping[str, Mapping[str, str]] = {
    "changes": {"int(protocol IS NOT NULL)": "CAST(protocol IS NOT NULL AS INT)"},
    "refusals": {
        "explode(from_json(detail, 'map<string, string>')) AS (request, detail)": (
            "unnest(map_keys(CAST(CAST(detail AS JSON) AS MAP(VARCHAR, VARCHAR)))) AS request,"
            " unnest(map_values(CAST(CAST(detail AS JSON) AS MAP(VARCHAR, VARCHAR)))) AS detail"
        ),
    },
    "member_state": {
        "to_json(map_from_entries(array_sort(array_agg(\n"
        "    struct(CAST(refusal.request AS STRING) AS request, refusal.detail)\n"
        "  ) FILTER (WHERE refusal.request IS NOT NULL)))) AS detail": (
            "coalesce(CAST(to_json(map_from_entries(array_agg(\n"
            "    row(CAST(refusal.request AS VARCHAR), refusal.detail)\n"
            "  ) FILTER (WHERE refusal.request IS NOT NULL))) AS VARCHAR), '{}') AS detail"
        ),
    },
    "transactions": {
        "from_json(get_json_object(detail, '$.operations'),"
        " 'ARRAY<STRUCT<queue: STRING>>').queue": (
            "json_extract_string(detail, '$.operations[*].queue')"
        ),
    },
    "queue_messages": {"* EXCEPT (": "* EXCLUDE (", **_MESSAGE_COLUMNS},
    "messages": _MESSAGE_COLUMNS,
}
"""What is written otherwise as a whole, by the file it is in. A phrase that is not there any more
is a bug (`_translated`)."""

MACROS = (
    "get_json_object(told, path) AS CASE WHEN json_valid(told) THEN told ->> path END",
    "size(found) AS CAST(len(found) AS INTEGER)",
    "json_object_keys(told) AS json_keys(told)",
    """string(told) AS CASE WHEN typeof(told) = 'BLOB' THEN TRY(decode(TRY_CAST(told AS BLOB)))
        ELSE CAST(told AS VARCHAR) END""",
    "startswith(whole, part) AS starts_with(whole, part)",
    "timestamp_micros(micros) AS make_timestamptz(micros)",
    "timestamp_millis(millis) AS make_timestamptz(millis * 1000)",
    "unix_micros(moment) AS epoch_us(moment)",
    """annotation_told(kind, told) AS CASE
        WHEN kind = 'timestamp' AND regexp_matches(told, '^[0-9]+$') AND length(told) < 15
        THEN CAST(make_timestamp(CAST(told AS BIGINT) * 1000) AS VARCHAR)
        ELSE told
    END""",
    """annotations_told(detail) AS map_from_entries(list_transform(
        map_entries(CAST(CAST(detail AS JSON) AS MAP(VARCHAR, VARCHAR[]))),
        lambda each: row(each.key, annotation_told(each.value[1], each.value[2]))
    ))""",
)
"""Functions of Spark that the views and people use, each with its arguments and what it is."""

_CASTS: Mapping[str, Mapping[str, str]] = {
    "transactions": {"operations": "INTEGER"},
    "members": {"acquired": "BIGINT", "acquired_bytes": "BIGINT"},
    "links": {"unsettled": "BIGINT"},
}
"""Columns whose type DuckDB makes wider than Spark: a sum of BIGINT is a HUGEINT. Those of queues
are declared (`_casts`)."""

_GUARD = "guard"
"""The step that is left out: `duckdb_views` has looked for a gap, and the tables stand still."""
_WITHOUT_CONTENT = {
    "JOIN (SELECT * FROM contents)": "LEFT JOIN (SELECT * FROM contents WHERE false)",
}
_WITHOUT_PIECES = "WHERE kind = 'content'", "WHERE false"

_ENTRY_STEPS = tuple(step for step in VIEWS["queues"] if step not in {"wiring_changes", "wiring"})
_STEPS: Mapping[str, tuple[str, ...]] = {
    **VIEWS,
    "queue_messages": ("events", "every_entry", "contents"),
    "messages": ("events", "every_entry", "departures"),
    "message_history": ("events",),
}
_NESTED: Mapping[str, tuple[str, ...]] = {"events": ("epochs",), "every_entry": _ENTRY_STEPS}
"""Steps with a WITH of their own. DuckDB computes a step that is named twice once, and all columns
of what stands in the same WITH with it: each body, for a count by property."""
_NAMED = {
    "epochs": "epochs",
    "events": "events",
    "entries": "SELECT * FROM every_entry",
    "contents": "SELECT * FROM contents",
    "departures": "SELECT * FROM departures",
}
"""Steps that have no place among the others in Spark (`sparkstore.sql.queries.view_text`)."""


def view_text(
    view: str, values: Mapping[str, str], *, has_content: bool = True, has_body: bool = True
) -> str:
    """Write a view's query in DuckDB's SQL.

    Args:
        view: Which view, as the table `VIEWS` has it.
        values: For the placeholders of the text.
        has_content: Whether `queue_messages` has the columns of its content, or nulls there: then
            no content is read. DuckDB leaves out no join, even if nobody asks for what it brings.
        has_body: Whether a body that came in pieces is there: otherwise none is looked for.
    """
    whole = {**values, **_NAMED}
    query = _translated(view, whole)
    for phrase, ours in ({} if has_content else _WITHOUT_CONTENT).items():
        assert phrase in query
        query = query.replace(phrase, ours)
    if not (has_content and has_body):
        query = query.replace(*_WITHOUT_PIECES)
    wide = _casts(view).items()
    casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in wide)
    chosen = f"* REPLACE ({casts})" if casts else "*"
    return f"{_steps(_STEPS[view], whole)}\nSELECT {chosen} FROM (\n{query}\n)"


def _casts(view: str) -> Mapping[str, str]:
    if view != "queues":
        return _CASTS.get(view, {})
    return {column.name: "BIGINT" for column in columns_of(Road.VIEW) if column.kind == "bigint"}


def events_text(values: Mapping[str, str]) -> str:
    """Write the query for every record of history and of the journal that counts, of any kind."""
    return f"{_steps(('events',), {**values, **_NAMED})}\nSELECT * FROM events"


def queues_text(columns: Sequence[str]) -> str:
    """Write the query for some columns of queues, over tables `entries` and `wiring` themselves."""
    return f"SELECT {', '.join(columns)} FROM (\n{_translated('queues', {})}\n)"  # noqa: S608


def tail_text(values: Mapping[str, str]) -> str:
    """Write the query for the count of records after P, their positions' sum, and the last."""
    steps = _steps(("epochs", "tail"), {**values, **_NAMED})
    return f"{steps}\nSELECT count(*), coalesce(sum(position), 0), max(position) FROM tail"


def _steps(steps: Sequence[str], values: Mapping[str, str]) -> str:
    return "WITH " + ",\n".join(_step(step, values) for step in steps if step != _GUARD)


def _step(step: str, values: Mapping[str, str]) -> str:
    written = _translated(step, values)
    if step not in _NESTED:
        return f"{CALLED.get(step, step)} AS (\n{written})"
    return f"{step} AS NOT MATERIALIZED (\n{_steps(_NESTED[step], values)}\n{written})"


def _translated(name: str, values: Mapping[str, str]) -> str:
    written = statement(name, values)
    for phrase, ours in _PHRASES.get(name, {}).items():
        assert phrase in written, f"sql/{name}.sql has no {phrase!r} any more"
        written = written.replace(phrase, ours)
    for word, ours in _WORDS:
        written = word.sub(ours, written)
    return written
