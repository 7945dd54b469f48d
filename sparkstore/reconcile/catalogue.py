"""Every invariant of a root, declared once: name, severity and advice, and below it what it means.

`sparkstore verify` computes them without a JVM (`invariants`), `sparkstore reconcile` with Spark
(`record_checks`, `fold_checks`, `replica_checks`). Each of both maps what is declared here to a
function, and has no name or severity of its own. A finding has advice of its own where it knows
more than that its invariant is broken. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

INFO, WARNING, ERROR = "info", "warning", "error"

REPAIR = "run reconcile --repair"
BY_A_START = "start the store: it heals its journal from the write-ahead log"
GONE = "restore the root from a replica or a backup: what was durable is gone"
LOST_FILE = {
    "journal": "if history has its positions, nothing is lost and the next trim drops it; else"
    " restore it from a backup or promote a replica",
    "history": f"{REPAIR}, with --replica if there is one",
    "state": REPAIR,
}
"""What to do about a data file that is lost, by its table."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """An invariant: a statement that is true of a root at any moment. The text under each says it.

    Attributes:
        name: What findings and results call it.
        advice: What to do where it does not hold, unless a finding knows better.
        severity: Severity of a finding of it, unless the finding says what could not be compared.
        is_repaired: Whether `reconcile --repair`, or what the advice says, puts it right.
        is_deep: Whether computing it reads content, which `verify` does only if asked to.
    """

    name: str
    advice: str
    severity: str = ERROR
    is_repaired: bool = True
    is_deep: bool = False


TABLES_ARE_WHOLE = Invariant("tables_are_whole", REPAIR)
"""Every table opens, and every data file that it names is there, with its size and footer."""
LOG_CAN_BE_REPLAYED = Invariant(
    "log_can_be_replayed",
    "restore the root from a replica or a backup: a start would refuse this log",
)
"""What the write-ahead log has and the tables have not would be taken in by the next start."""
MARKS_ARE_NOT_AHEAD = Invariant("marks_are_not_ahead", GONE, is_repaired=False)
"""No table ends before the version that is marked durable."""
POSITIONS_ARE_GAPLESS = Invariant(
    "positions_are_gapless", f"{REPAIR}, with --replica if there is one"
)
"""History, and the journal after its end, have every position once."""
EPOCHS_RISE = Invariant(
    "epochs_rise",
    "two writers wrote at once, or records were changed: restore the root from a replica",
    is_repaired=False,
)
"""Each epoch is one run of positions that its `opened` begins, after the epoch before."""
TRANSACTIONS_ARE_WHOLE = Invariant(
    "transactions_are_whole",
    "see the positions around it in message_history; restore the rest from a replica",
    is_repaired=False,
)
"""All records of a transaction count, in a row, or none does."""
REQUESTS_RISE = Invariant(
    "requests_rise",
    "a request was done twice: see the records around it, and undo one of them",
    is_repaired=False,
)
"""Each request of a member was decided once, and after those before it."""
MESSAGE_IDS_WERE_RESERVED = Invariant(
    "message_ids_were_reserved",
    "stop the store: the next start would give this id to another message",
    is_repaired=False,
)
"""No message has an id that a store might give out again."""
LAYERS_AGREE = Invariant(
    "layers_agree",
    "one of the two was changed: compare with a replica, restore history from it",
    is_repaired=False,
)
"""A position that is in history and in the journal is the same record in both."""
STAGED_CONTENT_IS_USED = Invariant(
    "staged_content_is_used",
    "nothing to do: it is on no queue, and goes when its segment passes history_days",
    WARNING,
    is_repaired=False,
)
"""Content that came in pieces belongs to a message that was enqueued, or may be yet."""
STATE_IS_THE_FOLD_OF_HISTORY = Invariant(
    "state_is_the_fold_of_history", f"{REPAIR}: it is rebuilt from history"
)
"""`state` at P is what folding history up to P gives, and its meta row too."""
VIEWS_ANSWER = Invariant(
    "views_answer", "repair the positions that are missing: see positions_are_gapless"
)
"""The views over the tables answer; they refuse when records are missing after P."""
RECOVERY_AGREES = Invariant(
    "recovery_agrees", "views and recovery fold the same records differently: call the operator"
)
"""A broker would start with what the views show."""
ENTRIES_HAVE_QUEUES = Invariant("entries_have_queues", REPAIR)
"""Every entry is on a queue that exists, once."""
BINDINGS_JOIN_WHAT_IS_THERE = Invariant("bindings_join_what_is_there", REPAIR)
"""Every binding joins an exchange and a queue that exist."""
DELIVERIES_HAVE_LINKS = Invariant("deliveries_have_links", REPAIR)
"""Every delivery that is remembered is of a link that exists."""
CONTENT_IS_THERE = Invariant(
    "content_is_there",
    "restore its record from a backup, or give it up: reconcile --repair --purge-lost",
    is_deep=True,
)
"""Every message that is on a queue has its header, and as many bytes as its body has."""
ACQUISITIONS_ARE_ALIVE = Invariant(
    "acquisitions_are_alive",
    "start the broker, or run reconcile --repair: both give them back",
    WARNING,
)
"""Nobody holds an entry while no store runs. A running store knows its holders itself."""
_OF_A_REPLICA = "keep the one that is right; make the replica anew from it, in an empty folder"
REPLICA_AGREES = Invariant("replica_agrees", _OF_A_REPLICA)
"""A replica has the same record as its primary at every position that both have."""
REPLICA_FOLDS_AGREE = Invariant("replica_folds_agree", _OF_A_REPLICA)
"""A replica and its primary fold to the same queues at the last position that both have."""
