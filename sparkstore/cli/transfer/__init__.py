"""The commands that take something out of a root, and bring it into another.

Arguments of the command line come in; a document or a copy goes out, or comes in. `definitions` has
queues, exchanges and bindings (`sparkstore.operations.definitions`), `backups` has everything
(`sparkstore.replication.backup`).
"""
