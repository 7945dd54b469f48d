"""The store as the loop sees it: calls go out, and every answer comes back on the loop's thread.

`loop` and `inbox` bring calls of other threads onto the loop, one wake-up for as many as have come;
`store_calls` and `store_puts` count what is under way, so that a broker knows when it is quiet;
`contents` and `header_reader` load what is not in memory without a wait of the loop.
"""
