"""The compaction job: records leave the journal for history, and are folded into `state`.

    compaction_job              a whole run, by the command and by schedules
    compact ─► history_layout  records after P are appended to `history`, sorted for who asks
            ─► state_fold   …and change `state`, one MERGE a step; `state_changes` says what changes
            ─► retention    passed segments keep only what is still needed
            ─► upkeep       few, large files: small segments become one, OPTIMIZE, VACUUM
            ─► message_expiry  messages that stayed too long, or failed too often, leave it
            ─► catalog      the views, in the catalog of a session that has one

`plans` decides from a few numbers and is pure. Every commit is made under
the jobs' lease and marked durable before the next one counts on it, so that a job which is killed
anywhere is only repeated.
"""
