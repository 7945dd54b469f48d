"""Where a message goes: what a name means, exchanges, and what is bound to them.

`address` has the kinds of nodes that a name may mean, `destinations` says which one it does.
`routing` has all exchanges, and follows their alternates. `headers_exchange` routes by application
properties.
"""
