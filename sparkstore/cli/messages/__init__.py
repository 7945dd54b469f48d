"""The commands about messages of a queue: `browse`, `move`, `redrive`, `purge`, `undo`, and others.

Arguments of the command line come in; rows, files and requests to whoever has the queues go out.
Each module has a command or a few alike. Which messages are meant is said by a
predicate that Spark evaluates (`sparkstore.views.message_choice`), or by simple conditions that
need no Java (`sparkstore.control.message_choice`).
"""
