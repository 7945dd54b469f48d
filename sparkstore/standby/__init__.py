"""A standby: a second root that has all that a primary confirmed, and can take its place.

    admission       may this standby come, and what does it need first? Pure
    port, session   the primary's side: who comes in; copy, records of the journal, live groups
    copy_calls      a copy of the tables, over the same connection: a `Storage` at its far end
    followed_root   the standby's root: where it ends, what it takes, what is set aside
    follower        the standby's side of a connection
    stand_by        the standby's process: connect again, watch the witness, take over

The log's part is `sparkstore.shipping`. Who calls: `broker_shim.serve`. Why nothing is lost, and
why no two serve: ARCHITECTURE: A standby.
"""
