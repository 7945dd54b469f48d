"""The command `definitions`: queues, exchanges, bindings and policies as a document, and back."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import json_lines, print_lines
from sparkstore.cli.parsing import ROOT, add_config, add_dry_run, check_code, command, group, is_dry
from sparkstore.cli.target import (
    flush_broker,
    opened_broker,
    opened_control,
    opened_root,
    recovered,
)
from sparkstore.errors import InvalidRequest, StoreError

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.operations.administration import Order

_MOST_BYTES = 64 << 20


def add(subparsers: Subparsers) -> None:
    """Add the commands `definitions export` and `definitions import` to the command line."""
    summary = "write or read queues, exchanges, bindings and policies as a document"
    definitions = group(subparsers, "definitions", summary)
    command(
        definitions,
        export_definitions,
        "write the definitions of a root to standard output, as JSON",
        "Queues of subscriptions and of links are left out, and a note names them. No message is\n"
        "in it.\n\nexample:\n  sparkstore definitions export ROOT > definitions.json",
        name="export",
        by_url=True,
    )
    parser = command(
        definitions,
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
        by_url=True,
    )
    add_dry_run(parser, "say what would be done")
    parser.add_argument("--vhost", metavar="NAME", help="of RabbitMQ's: this virtual host")
    add_config(parser)


def export_definitions(arguments: Namespace) -> int:
    """Write the definitions of a root."""
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            answer = broker.ask("GET", "definitions")
        _show_document(arguments, answer["document"], answer["left_out"])
        return 0
    from sparkstore.operations.definitions.document import document_of

    with opened_root(arguments.root) as root:
        _show_document(arguments, *document_of(recovered(root)))
        note_unreplayed(root)
    return 0


def _show_document(arguments: Namespace, document: dict[str, Any], left: Sequence[str]) -> None:
    print(json.dumps(document, indent=None if arguments.json else 2))
    for name in left:
        note(f"{name!r:.80} is a link's own queue, or ends with its broker: left out")


def import_definitions(arguments: Namespace) -> int:
    """Create what a document defines, or say what would be created."""
    text = _document_text(arguments.file)
    if arguments.url is not None:
        body = {"document": text, "vhost": arguments.vhost, "dry_run": is_dry(arguments)}
        with opened_broker(arguments) as broker:
            answer = broker.ask("POST", "definitions", body)
        unmapped = [(part["left_out"], part["reason"]) for part in answer["left_out"]]
        _show_import(arguments, answer["orders"], unmapped)
        return check_code(arguments, answer["changes"])
    from sparkstore.operations.definitions.formats import definitions_of
    from sparkstore.operations.definitions.judgement import judge

    definitions = definitions_of(text, arguments.vhost)
    flush_broker(arguments.root)
    with opened_root(arguments.root) as root:
        judged = judge(definitions.orders, recovered(root))
    errors = [*definitions.errors, *judged.errors]
    if errors:
        for place, reason in errors:
            note(f"{arguments.file}: {place}: {reason}")
        raise InvalidRequest(f"{len(errors)} errors in {arguments.file}: nothing is done")
    if not is_dry(arguments):
        _give(arguments, judged.changes)
    _show_import(arguments, judged.answers, definitions.unmapped)
    return check_code(arguments, len(judged.changes))


def _give(arguments: Namespace, orders: Sequence[Order]) -> None:
    """Give the orders, which were judged, to whoever serves the root.

    Raises:
        StoreError: One was refused after all: the root has changed meanwhile, or has no room.
    """
    from sparkstore.operations.definitions.judgement import unfinished

    if not orders:
        return
    with opened_control(arguments) as control:
        for number, order in enumerate(orders):
            try:
                control.order(order)
            except StoreError as reason:
                raise unfinished(reason, number, len(orders)) from reason


def _show_import(
    arguments: Namespace, orders: Sequence[dict[str, Any]], unmapped: Sequence[tuple[str, str]]
) -> None:
    """Print what came of an import, or what would: each order, and what is left out and why."""
    if arguments.json:
        dry = {"dry_run": True} if is_dry(arguments) else {}
        print_lines(json_lines({**order, **dry} for order in orders))
        print_lines(json_lines({"left_out": place, "reason": text} for place, text in unmapped))
        return
    print_lines(map(_line, orders))
    print_lines(f"left out     {place}: {text}" for place, text in unmapped)
    would = " would change" if is_dry(arguments) else " changed"
    note(f"{sum(order['changed'] for order in orders)}{would}, {len(unmapped)} left out")


def _line(order: Mapping[str, Any]) -> str:
    what = "created" if order["changed"] else "is there"
    if order["act"] == "add-binding":
        return f"{what:12} binding {order['exchange']} {order['key']!r} → {order['queue']}"
    kind = next(kind for kind in ("queue", "exchange", "policy") if kind in order)
    return f"{what:12} {kind} {order[kind]}"


def _document_text(file: str) -> str:
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
