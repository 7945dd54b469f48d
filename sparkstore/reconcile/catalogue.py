"""Every invariant of a root, declared once: its name, what it means, how bad it is, what to do.

`sparkstore verify` computes them without a JVM (`invariants`), `sparkstore reconcile` with Spark
(`record_checks`, `fold_checks`, `replica_checks`); each of both maps what is declared here to a
function, and has no name, severity or advice of its own. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

INFO, WARNING, ERROR = "info", "warning", "error"

REPAIR = "run reconcile --repair"
BY_A_START = "start the store: it heals its journal from the write-ahead log"
GONE = "restore the root from a replica or a backup: what was durable is gone"


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must be true of a root at any moment.

    Attributes:
        name: What findings and results call it.
        meaning: What is true while it holds, one sentence.
        advice: What to do where it does not hold, unless a finding knows better.
        severity: Of a finding of it, unless the finding says what could not be compared.
        is_repaired: Whether `reconcile --repair`, or what the advice says, puts it right.
        in_verify: Whether `verify` computes it.
        in_reconcile: Whether `reconcile` computes it.
        is_deep: Whether computing it reads content, which `verify` does only if asked to.
    """

    name: str
    meaning: str
    advice: str
    severity: str = ERROR
    is_repaired: bool = True
    in_verify: bool = True
    in_reconcile: bool = True
    is_deep: bool = False


TABLES_ARE_WHOLE = Invariant(
    "tables_are_whole",
    "Every table opens, and every data file that it names is there, with its size and footer.",
    REPAIR,
)
LOG_CAN_BE_REPLAYED = Invariant(
    "log_can_be_replayed",
    "What the write-ahead log has and the tables have not would be taken in by the next start.",
    "restore the root from a replica or a backup: a start would refuse this log",
    in_reconcile=False,
)
MARKS_ARE_NOT_AHEAD = Invariant(
    "marks_are_not_ahead",
    "No table ends before the version that is marked durable.",
    GONE,
    is_repaired=False,
)
POSITIONS_ARE_GAPLESS = Invariant(
    "positions_are_gapless",
    "History, and the journal after its end, have every position once.",
    f"{REPAIR}, with --replica if there is one",
)
EPOCHS_RISE = Invariant(
    "epochs_rise",
    "Each epoch is one run of positions that its `opened` begins, after the epoch before.",
    "two writers wrote at once, or records were changed: restore the root from a replica",
    is_repaired=False,
)
TRANSACTIONS_ARE_WHOLE = Invariant(
    "transactions_are_whole",
    "All records of a transaction count, in a row, or none does.",
    "see the positions around it in message_history; restore the rest from a replica",
    is_repaired=False,
    in_verify=False,
)
REQUESTS_RISE = Invariant(
    "requests_rise",
    "Each request of a member was decided once, and after those before it.",
    "a request was done twice: see the records around it, and undo one of them",
    is_repaired=False,
)
MESSAGE_IDS_WERE_RESERVED = Invariant(
    "message_ids_were_reserved",
    "No message has an id that a store might give out again.",
    "stop the store: the next start would give this id to another message",
    is_repaired=False,
)
LAYERS_AGREE = Invariant(
    "layers_agree",
    "A position that is in history and in the journal is the same record in both.",
    "one of the two was changed: compare with a replica, restore history from it",
    is_repaired=False,
    in_verify=False,
)
STAGED_CONTENT_IS_USED = Invariant(
    "staged_content_is_used",
    "Content that came in pieces belongs to a message that was enqueued, or may be yet.",
    "nothing to do: it is on no queue, and goes when its segment passes history_days",
    WARNING,
    is_repaired=False,
    in_verify=False,
)
STATE_IS_THE_FOLD_OF_HISTORY = Invariant(
    "state_is_the_fold_of_history",
    "`state` at P is what folding history up to P gives, and its meta row too.",
    f"{REPAIR}: it is rebuilt from history",
)
VIEWS_ANSWER = Invariant(
    "views_answer",
    "The views over the tables answer; they refuse when records are missing after P.",
    "repair the positions that are missing: see positions_are_gapless",
    in_verify=False,
)
RECOVERY_AGREES = Invariant(
    "recovery_agrees",
    "A broker would start with what the views show.",
    "views and recovery fold the same records differently: call the operator",
    in_verify=False,
)
ENTRIES_HAVE_QUEUES = Invariant(
    "entries_have_queues", "Every entry is on a queue that exists, once.", REPAIR
)
BINDINGS_JOIN_WHAT_IS_THERE = Invariant(
    "bindings_join_what_is_there",
    "Every binding joins an exchange and a queue that exist.",
    REPAIR,
)
DELIVERIES_HAVE_LINKS = Invariant(
    "deliveries_have_links",
    "Every delivery that is remembered is of a link that exists.",
    REPAIR,
)
CONTENT_IS_THERE = Invariant(
    "content_is_there",
    "Every message that is on a queue has its header, and as many bytes as its body has.",
    "restore its record from a backup, or give it up: reconcile --repair --purge-lost",
    is_deep=True,
)
ACQUISITIONS_ARE_ALIVE = Invariant(
    "acquisitions_are_alive",
    "Nobody holds an entry while no store runs. A running store knows its holders itself.",
    "start the broker, or run reconcile --repair: both give them back",
    WARNING,
    in_verify=False,
)
_OF_A_REPLICA = "keep the one that is right; make the replica anew from it, in an empty folder"
REPLICA_AGREES = Invariant(
    "replica_agrees",
    "A replica has the same record as its primary at every position that both have.",
    _OF_A_REPLICA,
    in_verify=False,
)
REPLICA_FOLDS_AGREE = Invariant(
    "replica_folds_agree",
    "A replica and its primary fold to the same queues at the last position that both have.",
    _OF_A_REPLICA,
    in_verify=False,
)

INVARIANTS: tuple[Invariant, ...] = (
    TABLES_ARE_WHOLE,
    LOG_CAN_BE_REPLAYED,
    MARKS_ARE_NOT_AHEAD,
    POSITIONS_ARE_GAPLESS,
    EPOCHS_RISE,
    TRANSACTIONS_ARE_WHOLE,
    REQUESTS_RISE,
    MESSAGE_IDS_WERE_RESERVED,
    LAYERS_AGREE,
    STAGED_CONTENT_IS_USED,
    STATE_IS_THE_FOLD_OF_HISTORY,
    VIEWS_ANSWER,
    RECOVERY_AGREES,
    ENTRIES_HAVE_QUEUES,
    BINDINGS_JOIN_WHAT_IS_THERE,
    DELIVERIES_HAVE_LINKS,
    CONTENT_IS_THERE,
    ACQUISITIONS_ARE_ALIVE,
    REPLICA_AGREES,
    REPLICA_FOLDS_AGREE,
)
"""All of them, in the order in which either side tells what it found."""
