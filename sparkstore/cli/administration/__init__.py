"""The commands of an administrator: queues, exchanges, bindings, policies, clients and branches.

Arguments of the command line come in; rows and orders go out, to whoever serves the target (`cli.
target`). Each module has a noun: its parsers, its looks and its orders, which `orders` gives and
prints. Decisions are in `sparkstore.operations`.
"""
