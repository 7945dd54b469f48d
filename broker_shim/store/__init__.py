"""The message store that a broker plugs in.

    interface, reads         what a broker calls; what reads of any store have in common
    local, sink              a store that decides in this process, and where its records go
    delta, json, memory      the three tiers: Delta tables, small files, nothing
    remote, chain            a store in another process; several stores as one
    protocol                 what travels to such a process, and back
    link_stores, content_writer  termini over a store; content that comes in pieces

A broker's calls come in from any thread; completions go out on threads of the store, when what they
stand for would survive a power cut. `broker`, `listener_1_0` and `service` call it, `serve` makes
it. A store knows no connection and no protocol, and asks nobody for permission.

Decision: every refusal reaches the caller through its completion, as success does; nothing but
`Closed` is raised by a call. A broker then has one place that answers its client, and a store in
another process (which cannot raise in time) behaves the same. Rejected: raising what is known at
once and reporting the rest, which makes each caller handle every error twice.
"""
