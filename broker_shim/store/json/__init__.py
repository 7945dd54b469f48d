"""Tier 1: what was configured survives in small JSON files; messages live in memory.

`store` is the message store, `links` the one of termini, and `file` replaces a file as a whole, on
a thread of its own, and then fires the completions that waited for it.
"""
