"""The command `redrive`: dead letters back to the queues that they came from."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from sparkstore.cli.messages.bulk import add_bulk, asked, chosen_ids
from sparkstore.cli.messages.chosen_messages import waiting
from sparkstore.cli.notes import note_unreplayed, shower
from sparkstore.cli.output import fields, json_lines, print_lines
from sparkstore.cli.parsing import at_least_1, check_code, is_dry
from sparkstore.cli.target import opened_control, opened_root, queue_named, recovered
from sparkstore.operations.bulk import new_operation

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.control.client import AdminClient
    from sparkstore.core.fold import State
    from sparkstore.operations.bulk import Answer
    from sparkstore.operations.redrive import RedrivePlan
    from sparkstore.tables.root import Root

_SHOWN_IDS = 100
"""Ids that are listed of each queue that is gone."""


def add(subparsers: Subparsers) -> None:
    """Add the command `redrive` to the command line."""
    parser = add_bulk(
        subparsers,
        redrive,
        "put dead letters back on the queues that they came from",
        "All dead letters of the queue, unless some are chosen. They keep their order, and their\n"
        "delivery counts begin anew. A message stays, and is listed, if the queue that it came\n"
        "from is gone, or has no room (max_depth, max_bytes), or if it is no dead letter.\n\n"
        "examples:\n  sparkstore redrive ROOT dead --dry-run\n"
        "  sparkstore redrive ROOT dead --limit 10\n"
        "  sparkstore redrive ROOT dead --to repair --property land=eu",
    )
    parser.add_argument(
        "--to", metavar="QUEUE", help="where all of them go (default: each to its own)"
    )
    what = "the first N of them (default: all)"
    parser.add_argument("--limit", type=at_least_1, metavar="N", help=what)


def redrive(arguments: Namespace) -> int:
    """Put dead letters back on the queues that they came from."""
    if arguments.url is not None:
        row = _redriven_by_url(arguments)
    else:
        if not (arguments.where or arguments.ids or arguments.properties or arguments.subject):
            arguments.older_than = arguments.older_than or "0s"  # all of them, without Java
        with opened_root(arguments.root, whole=True) as root:
            row = _redriven(arguments, root)
    changes = sum(row["to"].values())
    _print(arguments, {"action": "redrive", "from": arguments.queue, **row})
    return check_code(arguments, changes) if is_dry(arguments) else 0


def _redriven_by_url(arguments: Namespace) -> dict[str, Any]:
    more = {name: getattr(arguments, name) for name in ("to", "limit")}
    more = {name: value for name, value in more.items() if value is not None}
    body = {**chosen_ids(arguments), **more, "dry_run": is_dry(arguments)}
    answer, seconds = asked(arguments, "redrive", body)
    arguments.queue = answer["queue"]
    gone = answer["origin_gone"].items()
    origins = [{"queue": name, "messages": count, "ids": []} for name, count in gone]
    left = {"origin_gone": origins, "no_origin": answer["no_origin"]}
    if is_dry(arguments):
        return {"dry_run": True, "to": answer["to"], "full": answer["full"], **left}
    row = {name: answer[name] for name in ("operation", "to", "done", "left", "gone")}
    return {**row, "full": sum(answer["full"].values()), **left, "seconds": seconds}


def _redriven(arguments: Namespace, root: Root) -> dict[str, Any]:
    from sparkstore.config import read_config
    from sparkstore.operations.redrive import RedrivePlan

    if arguments.config:
        read_config(arguments.config)  # before seconds of starting a JVM
    state = recovered(root)
    arguments.queue = queue_named(arguments, state)
    to = _target(arguments, state)
    with waiting(arguments)(root, state) as messages:
        ids = islice(messages.ids(), arguments.limit)
        (plan := RedrivePlan()).extend(state.queues, arguments.queue, ids, to)
    if is_dry(arguments):
        counts = {"to": _counts(plan.portions), "full": _counts(plan.full)}
        row = {"dry_run": True, **counts, **_left(plan)}
    else:
        row = _act(arguments, plan)
    note_unreplayed(root)
    return row


def _target(arguments: Namespace, state: State) -> str | None:
    from sparkstore.core.queue_arguments import terms_of
    from sparkstore.core.queue_names import find
    from sparkstore.operations.bulk import check_target

    if arguments.to is None:
        return None
    to, queues = find(arguments.to, state.queues), state.queues
    check_target(
        arguments.queue, to, lambda name: terms_of(queues[name].detail) if name in queues else None
    )
    return to


def _act(arguments: Namespace, plan: RedrivePlan) -> dict[str, Any]:
    """Ask whoever serves the root, one origin after the other; what is full is asked once more."""
    from sparkstore.operations.bulk import Answer

    began, operation = time.monotonic(), new_operation()
    total, done_of = Answer(), dict[str, int]()
    targets = {**plan.full, **plan.portions}
    with opened_control(arguments) as control:
        for target in targets:
            ids = [*plan.portions.get(target, ()), *plan.full.get(target, ())]
            answer = _moved(control, arguments, operation, (target, ids))
            total = total.plus(answer)
            done_of[target] = answer.done
    left = total._asdict() | _left(plan)
    seconds = round(time.monotonic() - began, 3)
    return {"operation": total.named(operation), "to": done_of, **left, "seconds": seconds}


def _moved(
    control: AdminClient, arguments: Namespace, operation: str, portion: tuple[str, list[int]]
) -> Answer:
    from sparkstore.control import bulk_run
    from sparkstore.operations.bulk import Action

    target, ids = portion
    job = bulk_run.Job(Action.REDRIVE, arguments.queue, target, operation)
    return bulk_run.run(control, job, ids, shower(arguments, f"redrive to {target}"))


def _left(plan: RedrivePlan) -> dict[str, Any]:
    """Name what stays: by origins that are gone, and what is no dead letter."""
    gone = [
        {"queue": name, "messages": len(ids), "ids": ids[:_SHOWN_IDS]}
        for name, ids in plan.lost.items()
    ]
    return {"origin_gone": gone, "no_origin": len(plan.strays)}


def _counts(portions: Mapping[str, list[int]]) -> dict[str, int]:
    return {target: len(ids) for target, ids in portions.items()}


def _print(arguments: Namespace, row: dict[str, Any]) -> None:
    if arguments.json:
        print_lines(json_lines([row]))
        return
    lost = row.pop("origin_gone")
    print_lines(fields(row))
    for origin in lost:
        ids = ", ".join(map(str, origin["ids"]))
        shown = f" ({ids})" if ids else ""
        text = f"{origin['queue']}: {origin['messages']} stay{shown}"
        print_lines(fields({"origin_gone": text}))
