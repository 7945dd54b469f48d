"""Benchmarks: run by `make bench`, never by the tests. Ratios in one run; no timed assertion."""
