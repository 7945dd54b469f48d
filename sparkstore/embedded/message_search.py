"""Find messages by their subject or a property, among all that history and the journal have.

One scan of the rows that brought a message, of a range of ids: no join, so its memory does not grow
with a queue. It does not ask where a message is now, which whoever asks knows: the broker has its
queues in memory. So a message is found on each queue that it is on, also after a move.

Bounds: `MOST_IDS` ids, the lowest first, and `MOST_ROWS` records in the files that are opened.
"""

from __future__ import annotations

from typing import NamedTuple

from sparkstore.embedded.answers import translated
from sparkstore.embedded.duckdb_views import add_events, connect
from sparkstore.embedded.queue_series import MOST_ROWS, begin_of_newest, time_text
from sparkstore.tables.root import Root

MOST_IDS = 100_000
_FITTING = """
SELECT DISTINCT message_id FROM sparkstore_events
WHERE kind = 'enqueued' AND protocol IS NOT NULL AND message_id BETWEEN ? AND ?
  AND epoch_us("at") >= ?
  AND (? = '' OR contains(lower(subject), lower(?)))
  AND (? = '' OR properties[?] = ?)
ORDER BY message_id LIMIT ?
"""


class SearchTerms(NamedTuple):
    """A subject and a property that messages are looked for by; given both, both have to fit.

    Attributes:
        subject: A part of it, in letters of either case; empty: any.
        name: Of the property; empty: any.
        value: Of the property, whole, as text.
        least: The lowest id of a message.
        most: The highest id of a message.
    """

    subject: str
    name: str
    value: str
    least: int
    most: int


class SearchResult(NamedTuple):
    """The ids of messages that fit, rising, and sentences about what was not looked at."""

    ids: list[int]
    left_out: list[str]


def message_search(root: Root, terms: SearchTerms) -> SearchResult:
    """Find messages, wherever they are now.

    Raises:
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """
    with translated(), connect() as connection:
        moment = add_events(connection, root)
        begin_us, left_out = begin_of_newest(moment), list[str]()
        if begin_us is not None:
            text = f"all that came before {time_text(begin_us)}"
            left_out.append(f"{text}, as more than {MOST_ROWS:,} records follow")
        subject, name, value, least, most = terms
        values = (least, most, begin_us or 0, subject, subject, name, name, value, MOST_IDS + 1)
        ids = [row[0] for row in connection.execute(_FITTING, values).fetchall()]
    if len(ids) > MOST_IDS:
        ids.pop()
        left_out.append(f"ids above {ids[-1]}, as {MOST_IDS:,} messages fit up to there")
    return SearchResult(ids, left_out)
