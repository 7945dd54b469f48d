"""The message store that a broker plugs in.

Decision: every refusal reaches the caller through its completion, as success does; nothing but
`Closed` is raised by a call. A broker then has one place that answers its client, and a store in
another process (which cannot raise in time) behaves the same. Rejected: raising what is known at
once and reporting the rest, which makes each caller handle every error twice.
"""
