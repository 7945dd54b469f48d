"""The store as the loop sees it: calls go out, and every answer comes back on the loop's thread.

`loop` and `inbox` bring calls of other threads onto the loop, one wake-up for as many as have come.
`store_calls` and `store_puts` count what is under way, so that a broker knows when it is quiet.
`contents` and `header_reader` load what is not in memory without a wait of the loop.

The virtual host and the links of a listener make their calls here, and no other part of a broker
speaks to a store. Completions of a store come on its threads; none of them reaches a queue or a
link but through the inbox. Nothing here decides what a call is for, and nothing here blocks the
loop: what takes time is done by threads that belong to these modules.
"""
