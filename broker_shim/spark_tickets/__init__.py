"""A queue as a streaming table: `readStream` of `format("sparkstore")` that takes, exactly once.

A batch of a query is a *ticket*: messages that the store has acquired for this query, under the
number of the batch's offset. They are taken as by any consumer of a member, so priorities, message
groups, selectors and `max_delivery_count` hold. Nothing new is stored: `acquired_by` of each
message is `spark-QUERY/ticket-N`, in every view.

    take      the service acquires messages as `…/ticket-n`, durably       latestOffset(n - 1)
    plan      the offset n goes to Spark's checkpoint                         partitions(n - 1, n)
    read      tasks load the content of the ticket's messages                 read
    commit    the sink has the batch, and Spark's checkpoint says so
    settle    the messages are dequeued                                       latestOffset(n)

Why each message is in an idempotent sink once: Spark calls `latestOffset(n)` after it has written
down that batch n is done, and before that the ticket stays acquired. So a batch that runs again
reads the same messages under the same number, and a sink that knows the number drops it. What is
settled is in the sink; what is not is held for the query, or waits.

Why a batch that the sink leaves out is not settled: a sink leaves out a number that it has had, and
that need not be this batch. A query without its checkpoint counts from 0 again, and one with an old
copy counts some numbers twice. So the first task of a ticket notes at the store that it is read, as
the last publication of the stream `spark-QUERY`, durably and before it gives the sink a row. Only
what was ever read is settled, and a ticket below the last one that was read is refused.

What happens if a process is killed:

* before the offset is in the checkpoint: the next run finds ticket n taken, and makes it batch n;
* before batch n is done: the next run asks `partitions` for it again;
* between its end and the settlement: `latestOffset(n)` of the next run settles it;
* amid the settlement: messages that are gone are settled, and the rest is settled then;
* the store: what it acquired or dequeued durably it knows after its start, and the driver asks
  again for what had no answer.

A query that died keeps its ticket for its lease (`leaseSeconds`), as a member of the store service
that is away. After it the messages wait again, and their deliveries have failed. A batch that needs
them then is refused: it cannot be read again as it was.

Modules: `ticket_settings` checks the options, `ticket_store` takes and settles at the service,
`ticket_reader` is what Spark drives, and `message_rows` makes record batches of messages.
"""

from broker_shim.spark_tickets.ticket_reader import TicketStreamReader
from broker_shim.spark_tickets.ticket_settings import ticket_settings

__all__ = ["TicketStreamReader", "ticket_settings"]
