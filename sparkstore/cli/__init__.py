"""The command `sparkstore`: arguments in, lines and an exit code out.

`command_line` makes the parser and runs one command. The other modules each have the commands of
one kind, a module of parsers and one of what they do, so that `--help` imports no engine. `output`
prints tables for people and JSON for machines, `notes` tells on standard error what a reader must
know beside the answer, and `control` finds who carries a change out. Nobody imports this package
but the entry point, the demo, and commands that `broker_shim` adds by an entry point.

It decides nothing about queues: each command asks the module that knows. What it cannot do is one
line that says what to do next, and an exit code.
"""
