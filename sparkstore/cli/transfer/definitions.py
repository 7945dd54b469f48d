"""The command `definitions`: queues, exchanges, bindings and policies as a document, and back."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import opened_root, print_lines, recovered
from sparkstore.cli.control import opened_control
from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import json_lines
from sparkstore.cli.parsing import ROOT, add_check, check_code, command
from sparkstore.errors import InvalidRequest, StoreError

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.operations.administration import Order

_MOST_BYTES = 64 << 20


def add(subparsers: Subparsers) -> None:
    """Add the commands `definitions export` and `definitions import` to the command line."""
    summary = "write or read queues, exchanges, bindings and policies as a document"
    parser = subparsers.add_parser("definitions", help=summary, description=f"{summary}.")
    group = parser.add_subparsers(metavar="COMMAND", required=True)
    command(
        group,
        export_definitions,
        "write the definitions of a root to standard output, as JSON",
        "Queues of subscriptions and of links are left out, and a note names them. No message is\n"
        "in it.\n\nexample:\n  sparkstore definitions export ROOT > definitions.json",
        name="export",
    )
    parser = command(
        group,
        import_definitions,
        "create what a document defines: ours, RabbitMQ's JSON or Artemis' broker.xml",
        "All is judged first. If anything is wrong, nothing is done, and each error is told with\n"
        "its place. What is there already stays; what is there otherwise is an error. What the\n"
        "other broker has and this one has not is listed as `left out`. The running broker does\n"
        "it, or this command under the writer's lock.\n\n"
        "examples:\n  sparkstore definitions import ROOT definitions.json --dry-run\n"
        "  rabbitmqctl export_definitions - | sparkstore definitions import ROOT - --vhost /\n"
        "  sparkstore definitions import ROOT broker.xml",
        positional=(ROOT, ("file", "the document; - is standard input")),
        name="import",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    add_check(parser)
    parser.add_argument("--vhost", metavar="NAME", help="of RabbitMQ's: this virtual host")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the store, if it has its own"
    )


def export_definitions(arguments: Namespace) -> int:
    """Write the definitions of a root."""
    from sparkstore.operations.definitions.document import document_of

    with opened_root(arguments.root) as root:
        document, left = document_of(recovered(root))
        print(json.dumps(document, indent=None if arguments.json else 2))
        for name in left:
            note(f"{name!r:.80} is a link's own queue, or ends with its broker: left out")
        note_unreplayed(root)
    return 0


def import_definitions(arguments: Namespace) -> int:
    """Create what a document defines, or say what would be created."""
    from sparkstore.operations.definitions.formats import definitions_of
    from sparkstore.operations.definitions.judgement import judge

    found = definitions_of(document_text(arguments.file), arguments.vhost)
    _flush(arguments.root)
    with opened_root(arguments.root) as root:
        judged = judge(found.orders, recovered(root))
    errors = [*found.errors, *judged.errors]
    if errors:
        for place, text in errors:
            note(f"{arguments.file}: {place}: {text}")
        raise InvalidRequest(f"{len(errors)} errors in {arguments.file}: nothing is done")
    is_dry = arguments.dry_run or arguments.check
    if not is_dry:
        _give(arguments, judged.changes)
    show_import(arguments, judged.answers, found.unmapped, is_dry=is_dry)
    return check_code(arguments, len(judged.changes))


def _flush(where: str) -> None:
    """Have the running broker bring into Delta what it has, so that the tables have it."""
    from sparkstore.control.client import connect_to

    if (served := connect_to(where)) is not None:
        with closing(served):
            served.flush()


def _give(arguments: Namespace, orders: Sequence[Order]) -> None:
    """Give the orders, which were judged, to whoever serves the root.

    Raises:
        StoreError: One was refused after all: the root has changed meanwhile, or has no room.
    """
    from sparkstore.operations.definitions.judgement import unfinished

    if not orders:
        return
    with opened_control(arguments.root, arguments.config) as control:
        for number, order in enumerate(orders):
            try:
                control.order(order)
            except StoreError as reason:
                raise unfinished(reason, number, len(orders)) from reason


def show_import(
    arguments: Namespace,
    told: Sequence[dict[str, Any]],
    unmapped: Sequence[tuple[str, str]],
    *,
    is_dry: bool,
) -> None:
    """Print what came of an import, or what would: each order, and what is left out and why."""
    if arguments.json:
        dry = {"dry_run": True} if is_dry else {}
        print_lines(json_lines({**each, **dry} for each in told))
        print_lines(json_lines({"left_out": place, "reason": text} for place, text in unmapped))
        return
    print_lines(_line(each) for each in told)
    print_lines(f"left out     {place}: {text}" for place, text in unmapped)
    would = " would change" if is_dry else " changed"
    note(f"{sum(each['changed'] for each in told)}{would}, {len(unmapped)} left out")


def _line(told: dict[str, Any]) -> str:
    what = "created" if told["changed"] else "is there"
    if told["act"] == "add-binding":
        return f"{what:12} binding {told['exchange']} {told['key']!r} → {told['queue']}"
    kind = next(each for each in ("queue", "exchange", "policy") if each in told)
    return f"{what:12} {kind} {told[kind]}"


def document_text(file: str) -> str:
    """Read the text of a document from a file, or from standard input.

    Raises:
        InvalidRequest: It is too large, or no text.
        OSError: It cannot be read.
    """
    if file == "-":
        content = sys.stdin.buffer.read(_MOST_BYTES + 1)
    else:
        with Path(file).open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InvalidRequest(f"{file} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        raise InvalidRequest(f"{file} is no text in UTF-8: {reason}") from reason
