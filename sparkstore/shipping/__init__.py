"""A primary's log, shipped to one standby while completions wait for both.

    steps       what may be confirmed, when the primary goes on alone, who may take over. Pure.
    frames      what the two say to one another, with its bounds
    peer        frames over a socket, with time limits
    shipping    the log's side: a group goes out before its own sync, its answer is read after it

`sparkstore.log` calls it and knows no more of a standby; `sparkstore.standby` brings a standby up
and is one. Why nothing is lost: ARCHITECTURE: A standby.
"""
