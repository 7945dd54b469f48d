"""The command `sparkstore`: arguments in, lines and an exit code out.

`command_line` runs one command. Each noun has a module or a folder: the parsers of its commands,
what they do, and how their answer is printed. An engine is imported where it is used, so `--help`
loads none. `parsing` has what parsers have in common, `target` opens the root or the broker that is
meant, `orders` gives an administrator's order. `output` prints tables for people and JSON for
machines, `notes` says on standard error what a reader must know beside the answer. Nobody imports
this package but the entry point, the demo, and commands that `broker_shim` adds by an entry point.

A toy order needs its endpoint, its decision in `sparkstore.operations`, and its command here.

It decides nothing about queues: each command asks the module that knows. What it cannot do is one
line that says what to do next, and an exit code.
"""
