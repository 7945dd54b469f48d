"""Decide the fate of each delivery when a link is resumed (2.6.13). Pure.

Both attaches carry a map: tag → state of what that end still holds unsettled. A tag that a complete
map does not name is settled at that end, or never got there. The sender decides and acts, as the
outcome takes effect at its end; the receiver lets go of what the sender has settled, keeps the rest
and waits. The numbers are those of the specification's example:

    sender's, receiver's:   not named        null, Received       outcome
    null, Received         SEND_AGAIN 1 5   RESUME 2 4 6         SETTLE 3 8
      further than theirs  SEND_AGAIN       ABORT 7 9            SETTLE
    outcome                FORGET 10        ABORT 11 14          SETTLE 12, other: RESTATE 13
    not named              -                IGNORE               IGNORE

An incomplete map proves nothing about what it does not name: that is kept for the next attach.

What is sure if both ends keep to it, whatever is lost on the way:

- Nothing that the receiver has accepted is sent again, while it is named: an outcome leads to
  SETTLE, RESTATE or ABORT, and ABORT only if the *receiver's* state is none.
- Nothing is lost: a sender without an outcome sends, resumes or aborts what it cannot send any
  more. It forgets only what had an outcome at its own end, or gets one from the receiver.
- What a receiver settles at once (rcv-settle-mode first) can come twice: to the sender, forgotten
  after it was taken and never arrived look the same (case 1). Exactly once takes a receiver that
  forgets only what it was told is settled (second), or one that knows that the sender has heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from broker_shim.amqp_1_0.composites import Accepted, Modified, Received, Rejected, Released

Unsettled = Mapping[bytes, Any]
"""Tag → delivery state, None where nothing is known of it."""

OUTCOMES = (Accepted, Rejected, Released, Modified)
"""States that end a delivery; every other one leaves it open, a transaction's too."""


class ResumptionStep(StrEnum):
    """The action of this end on a delivery."""

    SEND_AGAIN = "the peer has no trace of it: send it as a new delivery"
    RESUME = "the peer has part of it at most: send it with `resume`"
    SETTLE = "the peer has an outcome: take it as ours, and settle"
    RESTATE = "the peer has another outcome: ours holds, tell it with `resume`"
    ABORT = "the peer waits for what cannot be sent any more: abort it with `resume`"
    FORGET = "the peer has settled it: settled here, too, without a word"
    KEEP = "hold it unsettled: the sender is to act, or the peer's map said nothing of it"
    IGNORE = "it is none of ours: nothing to do"


def decide(
    *, is_receiver: bool, ours: Unsettled, theirs: Unsettled, is_complete: bool = True
) -> dict[bytes, ResumptionStep]:
    """Decide the action of our end for each tag of either map.

    Args:
        is_receiver: Whether we are the link's receiver.
        ours: All that we hold, told or not.
        theirs: The unsettled map of the peer's attach.
        is_complete: False if the peer's map was incomplete.
    """
    decided = dict.fromkeys(theirs, ResumptionStep.IGNORE)
    for tag, state in ours.items():
        if tag not in theirs:
            decided[tag] = _not_named(state, is_receiver=is_receiver, is_complete=is_complete)
        elif is_receiver:
            decided[tag] = ResumptionStep.KEEP
        else:
            decided[tag] = _both_named(state, theirs[tag])
    return decided


def to_tell(decided: Mapping[bytes, ResumptionStep], ours: Unsettled) -> dict[bytes, Any]:
    """Return the unsettled map of our attach after the decisions, if the peer's came first."""
    gone = {ResumptionStep.FORGET, ResumptionStep.SEND_AGAIN}
    return {tag: state for tag, state in ours.items() if decided[tag] not in gone}


def is_outcome(state: Any) -> bool:
    """Tell whether a state ends a delivery."""
    return isinstance(state, OUTCOMES)


def _not_named(ours: Any, *, is_receiver: bool, is_complete: bool) -> ResumptionStep:
    if not is_complete:
        return ResumptionStep.KEEP
    return ResumptionStep.FORGET if is_receiver or is_outcome(ours) else ResumptionStep.SEND_AGAIN


def _both_named(ours: Any, theirs: Any) -> ResumptionStep:
    """Decide a sender's action by its own state and the receiver's."""
    if not is_outcome(ours):
        if is_outcome(theirs):
            return ResumptionStep.SETTLE
        return (
            ResumptionStep.ABORT if _progress(ours) > _progress(theirs) else ResumptionStep.RESUME
        )
    if not is_outcome(theirs):
        return ResumptionStep.ABORT
    return ResumptionStep.SETTLE if ours == theirs else ResumptionStep.RESTATE


def _progress(state: Any) -> tuple[int, int]:
    """Return how far the payload has come; no record is as good as nothing received."""
    if isinstance(state, Received):
        return state.section_number, state.section_offset
    return 0, 0
