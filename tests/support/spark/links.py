"""Links and their deliveries as oracle, `state` and views have them, in the same values."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.core import fold
from sparkstore.core.link_records import LinkKey, link_key
from sparkstore.tables.root import Root


class Links(NamedTuple):
    """What a fold says of links.

    Attributes:
        links: Detail, and when it was detached (UTC µs), by key.
        remembered: States of deliveries by key and tag in hexadecimal.
        sent: Queues of entries that a link acquired, by key and message id.
    """

    links: dict[LinkKey, tuple[str, int | None]]
    remembered: dict[tuple[LinkKey, str], str | None]
    sent: dict[tuple[LinkKey, int], str]


def expected_links(state: fold.State) -> Links:
    """What the oracle says."""
    return Links(
        {link_key(text): (link.detail, link.detached_at) for text, link in state.links.items()},
        {
            (link_key(text), tag.hex()): told
            for text, link in state.links.items()
            for tag, told in link.unsettled.items()
        },
        {
            (link_key(entry.acquired_by), message_id): name
            for name, queue in state.queues.items()
            for message_id, entry in queue.entries.items()
            if entry.acquired_by in state.links
        },
    )


def stored_links(root: Root) -> Links:
    """What `state` holds, without Spark."""
    table = DeltaTable(str(root.state)).to_pyarrow_table()
    at = table.schema.get_field_index("at")
    rows = table.set_column(at, "at", table["at"].cast(pa.int64())).to_pylist()
    links = {row["exchange"]: row for row in rows if row["part"] == "link"}
    deliveries = [row for row in rows if row["part"] == "delivery"]
    assert len(links) == sum(row["part"] == "link" for row in rows)
    remembered = {
        (link_key(row["exchange"]), row["binding_key"]): row["detail"] for row in deliveries
    }
    assert len(remembered) == len(deliveries)
    assert all(row["exchange"] in links for row in deliveries)
    return Links(
        {link_key(text): (row["detail"], row["at"]) for text, row in links.items()},
        remembered,
        {
            (link_key(row["acquired_by"]), row["message_id"]): row["queue"]
            for row in rows
            if row["part"] == "entry" and row["acquired_by"] in links
        },
    )


def viewed_links(spark: SparkSession) -> Links:
    """What the views `links` and `deliveries` say; what they say twice is compared, too."""
    rows = spark.sql("SELECT *, unix_micros(detached_at) AS micros FROM links").collect()
    deliveries = spark.sql("SELECT * FROM deliveries").collect()
    found = Links({}, {}, {})
    counts: dict[LinkKey, int] = {}
    for row in deliveries:
        key = LinkKey(row.container, row.name, row.role)
        counts[key] = counts.get(key, 0) + 1
        if row.queue is None:
            found.remembered[key, row.tag] = row.state
        else:
            assert int(row.tag, 16) == row.message_id
            found.sent[key, row.message_id] = row.queue
    for row in rows:
        key = LinkKey(row.container, row.name, row.role)
        found.links[key] = row.detail, row.micros
        assert row.attached == (row.micros is None)
        assert row.unsettled == counts.pop(key, 0)
        assert row.source == "q"
    assert (len(found.links), counts) == (len(rows), {})
    assert len(found.remembered) + len(found.sent) == len(deliveries)
    return found
