"""Tier 1: what was configured survives in small JSON files; messages live in memory.

`json_store` is the message store, and `json_link_store` the one of termini. `file` replaces a file
as a whole, on a thread of its own, and then fires the completions that waited for it.

`serve` makes such a store when a broker is to keep its configuration and nothing else. Definitions
come in, and a completion fires when the file that has them was fsynced; at the next start the same
definitions come out. Messages never reach the disk here, and a file is never written in place.
"""
