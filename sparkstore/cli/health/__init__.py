"""The commands that say whether a root is well: `check` by thresholds, `reconcile` by invariants.

Arguments of the command line come in; one line, a report and an exit code go out. `check` is for a
monitoring system and asks `sparkstore.operations.root_check`; `reconcile` runs the job so named.
"""
