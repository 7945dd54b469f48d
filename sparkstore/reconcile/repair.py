"""`reconcile --repair`: what can be put right is, layer by layer, and what cannot says why not.

In this order, because each step stands on the one before:

1. set aside the end of a table that a power cut broke (`healing`)
2. repair history (`repair_history`)
3. make `state` anew from history (`repair_state`)
4. have the store repair what it owns (`repair_store`)

Each looks anew at what the one before left. A step that is killed has changed nothing, or all of
it: the next run goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from sparkstore.config import StoreConfig
from sparkstore.errors import CorruptData, StoreError
from sparkstore.jobs.failpoints import Failpoint, no_failpoint
from sparkstore.reconcile import repair_history, repair_state, repair_store
from sparkstore.reconcile.catalogue import (
    ACQUISITIONS_ARE_ALIVE,
    CONTENT_IS_THERE,
    DELIVERIES_HAVE_LINKS,
    ENTRIES_HAVE_QUEUES,
    LAYERS_AGREE,
    POSITIONS_ARE_GAPLESS,
    REPLICA_AGREES,
    STATE_IS_THE_FOLD_OF_HISTORY,
    TABLES_ARE_WHOLE,
    VIEWS_ANSWER,
)
from sparkstore.reconcile.findings import DONE, PROPOSED, Finding, finding_of
from sparkstore.reconcile.fold_checks import state_is_the_fold_of_history
from sparkstore.reconcile.inspection import Look
from sparkstore.reconcile.record_checks import positions_are_gapless
from sparkstore.tables import healing
from sparkstore.tables.fencing import COPY, PRIMARY
from sparkstore.tables.root import Root
from sparkstore.views.spark_tables import translated

_log = logging.getLogger(__name__)

STEPS = ("heal", "history", "state", "store")
"""The steps of a repair, in order."""

_JOBS_TABLES = ("history", "state")
_OF_COPIES = {
    TABLES_ARE_WHOLE.name,
    POSITIONS_ARE_GAPLESS.name,
    STATE_IS_THE_FOLD_OF_HISTORY.name,
    ENTRIES_HAVE_QUEUES.name,
    DELIVERIES_HAVE_LINKS.name,
    VIEWS_ANSWER.name,
}
"""What may be broken because history or state is not what it was: both are looked at again."""


class Looks(NamedTuple):
    """A look at the root, and one at its replica if it has one."""

    root: Look
    replica: Look | None


@dataclass(slots=True)
class Mended:
    """Results of the steps of a repair, and why others failed, by a word for the step."""

    done: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    lost: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Repair:
    """The steps of one repair.

    Attributes:
        root: Where, or a job's copy of it; the caller holds the jobs' lease.
        looks: Opens a look.
        config: Settings of the store, for when no broker runs.
        purge_lost: Messages whose content is nowhere are dropped.
        audit_file: Gets the audit lines while no broker runs; None: `audit.log` in the root.
        at: Called with its name after each step that was due.
    """

    root: Root
    looks: Callable[[], AbstractContextManager[Looks]]
    config: StoreConfig
    purge_lost: bool
    audit_file: Path | None = None
    at: Failpoint = no_failpoint

    def run(self, findings: Sequence[Finding]) -> Mended:
        """Repair what can be repaired of some findings, and free what dead consumers held."""
        mended = Mended()
        # In a bucket a version is whole or absent, and it is not taken back.
        is_copy = self.root.identity.role == COPY
        if not is_copy and any(one.subject in _JOBS_TABLES for one in findings):
            self._step(mended, "heal", self._heal)
        checks = {one.check for one in findings if not one.subject.startswith("replica ")}
        if checks & _OF_COPIES:
            self._step(mended, "history", lambda: self._history(findings))
            self._step(mended, "state", self._state)
        if self.root.identity.role in {PRIMARY, COPY}:
            self._step(mended, "store", lambda: self._store(mended, checks))
        return mended

    def _step(self, mended: Mended, name: str, do: Callable[[], str]) -> None:
        try:
            with translated(name):
                done = do()
        except (StoreError, OSError) as reason:
            mended.failed[name] = str(reason)
            _log.warning("%s cannot be repaired: %s", name, reason)
        else:
            if done:
                mended.done[name] = done
                _log.info("%s", done)
        self.at(name)

    def _heal(self) -> str:
        healed = healing.heal(self.root, _JOBS_TABLES)
        return "; ".join(
            f"{one.table}: {len(one.set_aside)} files of its broken end set aside" for one in healed
        )

    def _history(self, findings: Sequence[Finding]) -> str:
        apart = {finding.check for finding in findings} & {REPLICA_AGREES.name, LAYERS_AGREE.name}
        if apart:
            message = f"history is left alone: {', '.join(sorted(apart))} says that two copies"
            message += " differ, and nobody here knows which is right"
            raise CorruptData(message)
        with self.looks() as (seen, replica):
            return repair_history.mend(seen, replica)

    def _state(self) -> str:
        with self.looks() as (seen, _replica):
            if positions_are_gapless(seen):
                raise CorruptData("history must be whole before state can be rebuilt from it")
            if not (seen.lost["state"] or state_is_the_fold_of_history(seen)):
                return ""
            return repair_state.mend(seen)

    def _store(self, mended: Mended, checks: Collection[str]) -> str:
        done = []
        with self.looks() as (seen, _replica):
            is_copy = self.root.identity.role == COPY
            place = self.root.identity.primary if is_copy else seen.root
            released = repair_store.release_held(seen, place, self.config, self.audit_file)
            if released.done:
                done.append(f"{released.done} messages given back")
                # The running broker told which of its holders are dead.
                if ACQUISITIONS_ARE_ALIVE.name not in checks:
                    dead = finding_of(
                        ACQUISITIONS_ARE_ALIVE, "holders", released._asdict(), done[0]
                    )
                    mended.lost.append(replace(dead, repair=DONE))
            # What history lost and could not get back may be in the journal still.
            is_lost = CONTENT_IS_THERE.name in checks
            if self.purge_lost and is_lost and "history" not in mended.failed:
                purged = repair_store.purge_lost(seen, place, self.config, self.audit_file)
                done.append(f"{purged.done} messages without content dropped")
        return "; ".join(done)


def with_repairs(
    before: Sequence[Finding], after: Sequence[Finding], mended: Mended
) -> Iterator[Finding]:
    """The findings of a run with repairs: what is gone is done, what is left says why.

    Args:
        before: Findings before the repair.
        after: Findings of the look after it.
        mended: What was done in between.
    """
    left = {finding.key for finding in after}
    done, failed = "; ".join(mended.done.values()), "; ".join(mended.failed.values())
    for finding in before:
        if finding.key not in left:
            yield replace(finding, repair=DONE, advice=done or "gone in the second look")
    for finding in after:
        is_due = failed and finding.repair == PROPOSED
        why = f"{finding.advice} (not repaired: {failed})"
        yield replace(finding, advice=why) if is_due else finding
    yield from mended.lost
