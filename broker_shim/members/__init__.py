"""Several brokers on one set of queues: what a store service does for them, and a broker that asks.

In the service's process, from the wire inward: `member_dispatcher` takes the frames of members that
are about consumers. `consumers` stand for those at the queues of the one broker that decides
(`broker_shim.broker`). `grants` acquires what they are to have and tells them. `observer` brings
what members did by requests to that broker. `absences` knows whom queues wait for, and `stream`
tells all of them about wiring (`wiring_rows`).

In the process of a member: `membership` keeps its broker alike, and `remote_queue` stands for each
queue: it asks the service instead of deciding.

Decision: which message goes to whom is decided in one place, by the service's broker, with the same
code as in a broker alone. So priorities, message groups, exclusive queues, last values, selectors,
`max_delivery_count` and expiry mean the same however many members there are. No two members race
for a message. None starves, as consumers on all members take turns at one queue. The price is that
the service acquires for all; routing, protocols, encryption and clients cost the members.
"""
