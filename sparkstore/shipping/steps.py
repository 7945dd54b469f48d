"""Decide what a primary may confirm, when it goes on alone, and when a standby may take over. Pure.

The witness's object names the standby that is in step: whose log has all that was ever confirmed.
Why nobody who lacks something serves: completions wait for a standby from before the witness names
it until after the witness names nobody. Each change of that object is one conditional
replacement, so a take-over that was decided by an older object fails.
"""

from __future__ import annotations

from typing import NamedTuple

from sparkstore.witness.holder import Holder

_LOOKS = 12
"""Looks at the witness in the time of a lease."""
_SELDOM_S, _JUST_AFTER_S = 1.0, 0.005


_NEAR_RECORDS, _NEAR_BYTES = 20_000, 32 << 20
"""So little a standby gets while groups that come are kept for it: half of what may be kept."""


class Synchrony(NamedTuple):
    """Settings of a primary that has, or may have, a standby.

    Attributes:
        is_always: Nothing is confirmed without a standby. False: the primary goes on alone.
        grace_s: How long a standby may be silent before that.
    """

    is_always: bool = False
    grace_s: float = 5.0


class Standing(NamedTuple):
    """Where a primary stands with its standby.

    Attributes:
        standby: Root id of the standby that must have what is confirmed; empty: nobody.
        acked: The standby has synced all positions up to this one.
        silent_since_s: When it was last heard of; None: it answers.
    """

    standby: str = ""
    acked: int = 0
    silent_since_s: float | None = None


def may_confirm(standing: Standing, position: int, synchrony: Synchrony) -> bool:
    """Tell whether a record that the primary has synced may be confirmed, as far as standbys go."""
    if standing.standby:
        return standing.acked >= position
    return not synchrony.is_always


def is_due_alone(standing: Standing, now_s: float, synchrony: Synchrony) -> bool:
    """Tell whether the primary is to record that it is alone, and then to go on without a standby.

    With `is_always` it never is: nothing would be won.
    """
    if not standing.standby or standing.silent_since_s is None or synchrony.is_always:
        return False
    return now_s - standing.silent_since_s >= synchrony.grace_s


def may_join(lacking_records: int, lacking_bytes: int) -> bool:
    """Tell whether a standby that is brought up is near enough to the end of the log.

    From then on new groups are kept in memory until it has the rest. A few long records would take
    longer than the memory lasts, as many short ones would.

    Args:
        lacking_records: Records that are in the log and not at the standby.
        lacking_bytes: Their bytes there.
    """
    return lacking_records <= _NEAR_RECORDS and lacking_bytes <= _NEAR_BYTES


class Sighting(NamedTuple):
    """State of a witness's object, as a standby sees it by its own clock.

    Attributes:
        tag: Its tag, when the witness answered last.
        since_s: The standby has seen this very object since then.
        answered_s: When the witness answered last.
    """

    tag: str = ""
    since_s: float = 0.0
    answered_s: float = 0.0


def seen_again(
    before: Sighting, tag: str, asked_s: float, answered_s: float, lease_s: float
) -> Sighting:
    """Note an answer of the witness.

    Why a silence as long as a lease begins the count anew: the primary could not renew it either.
    It is to go on when the witness answers again, rather than to lose its place to a faster look.
    """
    if tag == before.tag and asked_s - before.answered_s <= lease_s:
        return before._replace(answered_s=answered_s)
    return Sighting(tag, answered_s, answered_s)  # written before: its lease is over before ours is


def next_look_s(lease: Holder, unchanged_s: float) -> float:
    """Return how long a standby waits until it looks at the witness again.

    It looks often enough to see a renewal soon, and once more when the lease has just run out.
    """
    left_s = lease.over_after_s - unchanged_s
    often_s = min(_SELDOM_S, lease.lease_s / _LOOKS)
    return min(often_s, left_s + _JUST_AFTER_S) if left_s > 0 else often_s


def may_take_over(lease: Holder, standby: str, unchanged_s: float) -> bool:
    """Tell whether a standby may take over: by an object of its own, or as this one is its own.

    The latter is a take-over whose answer was lost. It took effect once the lease was over, and all
    that was confirmed was at the standby. From then on its old primary can neither confirm anything
    nor rewind the standby, as it asks the witness before either: so to finish is what is left.

    Args:
        lease: What the object says.
        standby: Root id of the standby that asks.
        unchanged_s: How long the standby has seen this very object, by its own clock.
    """
    if lease.root_id == standby:
        return True
    if lease.in_step != standby or lease.is_paused:
        return False
    return lease.is_closed or unchanged_s > lease.over_after_s
