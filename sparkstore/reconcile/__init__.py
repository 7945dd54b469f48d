"""The reconciliation job: every copy of a store's records says the same, or a finding says not.

    catalogue                 every invariant, declared once: name, severity, advice, meaning
    inspection                all tables of a root as they were at one moment
    record_checks, fold_checks, replica_checks       one function a check: what must be true
    sides                     a copy, folded by the views' own SQL, so that copies can be compared
    findings                  the table of what was found
    repair, repair_*          what can be put right, layer by layer
    invariants                the checks of `sparkstore verify`, without a JVM

A root, and perhaps its replica, come in; findings go out, and repairs if they were asked for. What
a repair cannot decide is left alone, and the finding says why.
"""
