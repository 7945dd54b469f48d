"""The store as a state machine: a call comes in; a refusal, or the records to keep, go out. Pure.

`state_machine` decides calls about messages, `wiring` about queues and bindings,
`link_state_machine` about links; `call_values` are what calls take and come to, alone or in a
transaction, which `transactions` ends; `branches` prepares one that is decided later, and
`in_doubt` keeps others from it meanwhile; `arguments` is the one check of what callers give, for
every store and the service; `definitions` is wiring as JSON. A store calls it under its lock and
hands the records to its sink, in the order in which they were decided.

A running broker's store, the store service and the offline control share it, so all of them refuse
alike. It knows no file, no thread and no clock; times are arguments.
"""
