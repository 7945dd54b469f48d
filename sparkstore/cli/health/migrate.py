"""The command `migrate`: may this release serve a root, and what is to be done before it does."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparkstore.cli.health.diagnosis import Diagnosis
from sparkstore.cli.health.doctor import show_diagnoses
from sparkstore.cli.parsing import command
from sparkstore.cli.target import opened_root, recovered
from sparkstore.errors import StoreError

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.tables.root import Root


def add(subparsers: Subparsers) -> None:
    """Add the command `migrate` to the command line."""
    parser = command(
        subparsers,
        migrate,
        "say whether this release can serve a root, before an upgrade",
        "Run the new release's command on the root that the old one serves, or has served: it\n"
        "changes nothing. Each line is ok, warn or fail, and says what to do: the version of the\n"
        "tables, every record of them, what is in the write-ahead log, who has the root open,\n"
        "and its replicas. Exit code 1: this release cannot serve it as it is. No release so far\n"
        "needs its tables migrated, so there is no migration but --check.\n\n"
        "example:\n  sparkstore migrate --check /var/lib/queues",
    )
    parser.add_argument(
        "--check", action="store_true", required=True, help="look, and change nothing"
    )


def migrate(arguments: Namespace) -> int:
    """Say whether this release can serve a root."""
    with opened_root(arguments.root, whole=True) as root:
        diagnoses = [*_of_root(root)]
    return show_diagnoses(arguments, diagnoses)


def _of_root(root: Root) -> Iterator[Diagnosis]:
    from sparkstore.tables.schema import SCHEMA_VERSION

    text = f"schema version {SCHEMA_VERSION}, as this release writes: nothing to migrate"
    yield Diagnosis("tables", "ok", text, "")
    yield _records(root)
    yield _log(root)
    yield _opened(root)
    for replica in root.identity.replicas:
        yield _replica(replica)


def _records(root: Root) -> Diagnosis:
    """Read all records that Delta has: a kind or a column that is not known is found so."""
    try:
        state = recovered(root)
    except StoreError as reason:
        return Diagnosis("records", "fail", str(reason), "keep the release that wrote them")
    count = sum(len(queue.entries) for queue in state.queues.values())
    text = f"all read: {count} messages on {len(state.queues)} queues"
    if any('"first_id"' in detail for detail in state.prepared.values()):
        text += "; a branch in doubt is in runs, which earlier releases refuse: decide it first"
    return Diagnosis("records", "ok", text, "")


def _log(root: Root) -> Diagnosis:
    from sparkstore.log.unreplayed_records import unreplayed

    try:
        records = unreplayed(root)
    except (StoreError, OSError) as reason:
        return Diagnosis("write-ahead log", "fail", str(reason), "start and stop the old release")
    if records is None:
        return Diagnosis("write-ahead log", "ok", "nothing that is not in the tables", "")
    advice = "start the old release once and stop it cleanly: it replays them"
    form = "; some are in runs, which earlier releases refuse" if records.has_runs else ""
    return Diagnosis("write-ahead log", "warn", f"{records}{form}", advice)


def _opened(root: Root) -> Diagnosis:
    from sparkstore.tables.lock import is_held

    for file, what in (("writer.lock", "a store"), ("jobs.lock", "a job")):
        if is_held(root.path / file):
            text = f"{what} has the root open"
            return Diagnosis("in use", "warn", text, "stop it cleanly before the upgrade")
    return Diagnosis("in use", "ok", "no process of this machine has the root open", "")


def _replica(where: str) -> Diagnosis:
    from sparkstore.storage.objects import is_object_uri
    from sparkstore.tables.root import open_root

    name = f"replica {where}"
    if is_object_uri(where):
        return Diagnosis(name, "warn", "it is in a bucket", f"sparkstore migrate --check {where}")
    try:
        open_root(Path(where))
    except (StoreError, OSError) as reason:
        return Diagnosis(name, "warn", str(reason), "upgrade it together with the primary")
    return Diagnosis(name, "ok", "of the same schema version", "")
