"""The commands that say whether a root is well: `check` by thresholds, `reconcile` by invariants.

Arguments of the command line come in; one line, a report and an exit code go out. `check` is for a
monitoring system and asks `sparkstore.operations.root_check`; `reconcile` runs the job so named.
`doctor` looks at the machine and a root, by `machine_health` and `root_health`; what they find is a
`diagnosis.Diagnosis` each.
"""
