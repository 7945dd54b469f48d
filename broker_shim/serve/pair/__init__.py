"""Two machines of which one serves: what `sparkstore serve` makes of the settings of a pair.

    standby    the options; a life as a standby before the store is opened; the port for one after
    bucket     `--standby` of a root in a bucket, which waits for its turn
    witness    a start waits until the witness answers
    control    orders about the pair: who serves, pause, and the planned switch

Who calls: `broker_shim.serve.command`. What decides and what runs is `sparkstore.standby`.
"""
