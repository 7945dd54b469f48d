"""What a compaction is to do, decided from a few numbers. Pure: no Spark, no clock.

    compact_plan     how far one fold goes, and what a MERGE reads of `state`
    history_plan     what is appended to history, and how large its files get

The steps of the job ask these modules with what they counted, and carry out what comes back.
"""
