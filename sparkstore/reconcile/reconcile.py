"""The reconciliation job: every copy of a store's records says the same, or a finding says not.

Under the jobs' lease: look at the root at one moment (`inspection`), make every check of `CHECKS`,
write what was found to `<root>/findings`. What is found while something writes is looked at a
second time before it is believed: a root may get a new writer between two reads; a store that works
is never accused.

With `repair`, what the jobs own (history, state) is repaired by Spark commits under this lease.
What the store owns is asked of the running broker, or done under the writer's lock if none runs
(`repair`). Then everything is checked again: a repair is done when its finding is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from sparkstore.config import StoreConfig
from sparkstore.errors import StoreError
from sparkstore.jobs.failpoints import Failpoint, no_failpoint
from sparkstore.jobs.report import JobReport
from sparkstore.reconcile import catalogue, findings, fold_checks
from sparkstore.reconcile import record_checks as checks
from sparkstore.reconcile.catalogue import ERROR, WARNING, Invariant
from sparkstore.reconcile.comparable_roots import Roots, check_roots
from sparkstore.reconcile.findings import Finding
from sparkstore.reconcile.inspection import Look, look
from sparkstore.reconcile.repair import STEPS, Looks, Repair, with_repairs
from sparkstore.reconcile.replica_checks import checks_of_replica
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.fencing import COPY, check_may_work
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.root import Root, open_root
from sparkstore.views.spark_tables import translated

_log = logging.getLogger(__name__)

ALWAYS: Mapping[Invariant, checks.Check] = {
    catalogue.TABLES_ARE_WHOLE: checks.tables_are_whole,
    catalogue.POSITIONS_ARE_GAPLESS: checks.positions_are_gapless,
    catalogue.EPOCHS_RISE: checks.epochs_rise,
    catalogue.TRANSACTIONS_ARE_WHOLE: checks.transactions_are_whole,
    catalogue.REQUESTS_RISE: checks.requests_rise,
    catalogue.MESSAGE_IDS_WERE_RESERVED: checks.message_ids_were_reserved,
    catalogue.LAYERS_AGREE: checks.layers_agree,
    catalogue.STAGED_CONTENT_IS_USED: checks.staged_content_is_used,
    catalogue.STATE_IS_THE_FOLD_OF_HISTORY: fold_checks.state_is_the_fold_of_history,
    catalogue.VIEWS_ANSWER: fold_checks.views_answer,
}
IF_FOLDED: Mapping[Invariant, checks.Check] = {
    catalogue.RECOVERY_AGREES: fold_checks.recovery_agrees,
    catalogue.ENTRIES_HAVE_QUEUES: fold_checks.entries_have_queues,
    catalogue.BINDINGS_JOIN_WHAT_IS_THERE: fold_checks.bindings_join_what_is_there,
    catalogue.DELIVERIES_HAVE_LINKS: fold_checks.deliveries_have_links,
    catalogue.CONTENT_IS_THERE: checks.content_is_there,
    catalogue.ACQUISITIONS_ARE_ALIVE: fold_checks.acquisitions_are_alive,
}
"""Checks of what the views fold: when the views refuse, there is nothing to check."""
CHECKS = (catalogue.MARKS_ARE_NOT_AHEAD, *ALWAYS, *IF_FOLDED)
"""What is checked of every root; with a replica, `checks_of_replica` is made too."""

BOUNDARIES = ("looked", *STEPS, "findings written")
"""Moments between the commits of a run that repairs, in order; a step only if it is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileReport(JobReport):
    """Figures and findings of one run of `reconcile`.

    Attributes:
        run: Identity of the run, by which its rows are found in the table `findings`.
        position: F, up to which everything was compared.
        checks: How many checks were made.
        errors: Findings of severity error that are left.
        warnings: Findings of severity warning that are left.
        repaired: Findings that were repaired.
        findings: All of them, as the table has them.
    """

    run: str
    position: int
    checks: int
    errors: int
    warnings: int
    repaired: int
    findings: list[dict[str, object]]

    @property
    def exit_code(self) -> int:
        """1 if an error is left."""
        return 1 if self.errors else 0

    def figures(self) -> dict[str, Any]:
        """Return the figures without the findings, which have a table of their own."""
        own = ("run", "position", "checks", "errors", "warnings", "repaired")
        return {name: getattr(self, name) for name in own}


def run(
    spark: SparkSession,
    where: Root | str | Path,
    *,
    replica: Root | str | Path | None = None,
    repair: bool = False,
    purge_lost: bool = False,
    config: StoreConfig | None = None,
    audit_file: Path | None = None,
    at: Failpoint = no_failpoint,
) -> ReconcileReport:
    """Check a root once, and its replica; repair what can be, if asked to.

    Args:
        spark: A session with Delta.
        where: The root to check, or the path of its folder; of one in a bucket the copy that a job
            works on, when the bucket was asked whether it may.
        replica: A replica of it, to compare and to copy back from.
        repair: Repair what is found.
        purge_lost: With `repair`: drop messages whose content is nowhere any more.
        config: Settings of the store, for repairs while no broker runs.
        audit_file: Gets the audit lines of these repairs; None: `audit.log` in the root.
        at: Called at each of `BOUNDARIES`.

    Raises:
        InvalidRequest: There is no root, or the replica is not one of it.
        Locked: Another job has the lease of the root, or of the replica.
        Fenced: A replica took over, and `repair` would change what nobody uses; nothing was done.
        Unavailable: Spark or the storage failed.
        CorruptData: `root.json` cannot be read, or is from a newer schema version.
    """
    began = time.monotonic()
    roots = _roots(where, replica)
    is_copy = roots.root.identity.role == COPY
    with ExitStack() as leases, translated("reconcile"):
        for root in roots:
            if root is not None:
                leases.enter_context(jobs_lease(root.path))
        if repair and not is_copy:
            check_may_work(roots.root.path)
        job = _Reconciliation(spark, roots)
        problems, position = job.confirmed()
        at("looked")
        if repair:
            settings = config or StoreConfig()
            steps = Repair(roots.root, job.looks, settings, purge_lost, audit_file, at)
            mended = steps.run(problems)
            if mended.done or mended.failed:
                after, position = job.confirmed()
                problems = [*with_repairs(problems, after, mended)]
        run_id = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}-{uuid4().hex[:8]}"
        if roots.root.remote is None and not is_copy:  # what is no table of a bucket is only told
            findings.write(spark, roots.root, run_id, problems)
        at("findings written")
    return _report(roots.root, run_id, position, problems, time.monotonic() - began)


def _roots(where: Root | str | Path, replica: Root | str | Path | None) -> Roots:
    if isinstance(where, Root) and where.identity.role == COPY:
        return Roots(where, None if replica is None else open_root(_path(replica)))
    roots = check_roots(_path(where), None if replica is None else _path(replica))
    return roots._replace(root=where) if isinstance(where, Root) else roots


def _path(where: Root | str | Path) -> str | Path:
    return where.path if isinstance(where, Root) else where


def _report(
    root: Root, run_id: str, position: int, problems: Sequence[Finding], seconds: float
) -> ReconcileReport:
    left = [finding for finding in problems if finding.repair != findings.DONE]
    errors = sum(finding.severity == ERROR for finding in left)
    warnings = sum(finding.severity == WARNING for finding in left)
    return ReconcileReport(
        job="reconcile",
        root=str(root.path),
        outcome="findings" if errors or warnings else "done",
        run=run_id,
        position=position,
        checks=len(CHECKS),
        errors=errors,
        warnings=warnings,
        repaired=len(problems) - len(left),
        findings=[finding.as_row() for finding in problems],
        seconds=round(seconds, 3),
    )


class _Reconciliation:
    """Looks at a root and its replica, whose leases are held."""

    def __init__(self, spark: SparkSession, roots: Roots) -> None:
        self._spark, self._roots = spark, roots

    def confirmed(self) -> tuple[list[Finding], int]:
        """Return the findings, and the position up to which everything was compared.

        While something wrote to the journal, an error is one only if a second look finds it too.
        """
        version = newest_version(self._roots.root.journal)
        first, position = self._look()
        is_still = version == newest_version(self._roots.root.journal)
        if is_still or not any(finding.severity == ERROR for finding in first):
            return first, position
        again, position = self._look()
        before = {finding.key for finding in first}
        return [finding for finding in again if finding.key in before], position

    @contextmanager
    def looks(self) -> Iterator[Looks]:
        """Look at both roots, each at one moment."""
        with ExitStack() as kept:
            seen = kept.enter_context(look(self._spark, self._roots.root))
            other = self._roots.replica
            yield Looks(seen, kept.enter_context(look(self._spark, other)) if other else None)

    def _look(self) -> tuple[list[Finding], int]:
        broken = checks.tables_open(self._roots.root)
        if broken:
            return broken, 0
        with self.looks() as (seen, replica):
            made = {**ALWAYS, **({} if seen.refusal else IF_FOLDED)}
            problems = [one for of, check in made.items() for one in _made(of.name, check, seen)]
            if replica is not None:
                problems += _made("replica", lambda it: checks_of_replica(it, replica), seen)
            return problems, seen.end


def _made(name: str, check: checks.Check, seen: Look) -> list[Finding]:
    """Return the findings of a check; a check that cannot be made is a finding, too."""
    try:
        with translated("it cannot be checked"):
            made = check(seen)
    except StoreError as reason:
        advice = "repair what else is found first"
        made = [Finding(name, ERROR, "check", {"reason": str(reason)}, advice)]
    _log.info("%s: %d findings", name, len(made))
    return made
