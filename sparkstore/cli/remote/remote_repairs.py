"""Branches, repaired messages, copies and definitions of a remote broker: commands and parsers."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import print_lines
from sparkstore.cli.messages.resubmit import add_edit, edit_of
from sparkstore.cli.notes import note
from sparkstore.cli.remote.http_client import RemoteBroker, name_in_path
from sparkstore.cli.remote.remote_commands import checked, show, show_one, time_said
from sparkstore.cli.remote.remote_parsing import add_dry_run, added, group, is_dry
from sparkstore.cli.transfer.definitions import document_text, show_import
from sparkstore.operations.bulk import Answer
from sparkstore.operations.choice import choice_of

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers


def transactions(arguments: Namespace, broker: RemoteBroker) -> int:
    """List branches of distributed transactions in doubt, or decide one."""
    for way in ("commit", "rollback", "forget"):
        if (xid := getattr(arguments, way)) is not None:
            told = broker.ask("POST", f"transactions/{name_in_path(xid)}/{way}")
            row = {"act": told["act"], **told["details"], "changed": told["changed"]}
            show_one(arguments, row)
            return 0
    found = broker.pages("transactions")
    rows = [{**each, "since": time_said(each["since"])} for each in found]
    return show(arguments, rows, ("xid", "state", "since", "holder", "operations"))


def resubmit(arguments: Namespace, broker: RemoteBroker) -> int:
    """Put a repaired message in the place of another."""
    edit = edit_of(arguments)
    body: dict[str, Any] = {"properties": dict(edit.properties), "unset": sorted(edit.removed)}
    if edit.body is not None:
        body["body_base64"] = b64encode(edit.body).decode("ascii")
    body |= {"queue": arguments.queue, "to": arguments.to, "dry_run": arguments.dry_run}
    told = broker.ask("POST", f"messages/{arguments.message_id}/resubmit", body)
    row = {"action": "resubmit", "message_id": told["message"]}
    row |= {"from": told["queue"], "to": told["to"]}
    shown = ("dry_run", "properties", "body", "body_base64")
    names = shown if arguments.dry_run else ("operation", "done")
    kept = {name: told[name] for name in names if told[name] is not None}
    show_one(arguments, row | kept)
    return 0


def replay(arguments: Namespace, broker: RemoteBroker) -> int:
    """Put messages from history back on a queue."""
    body = {**_choice(arguments), "to": arguments.to, "dry_run": is_dry(arguments)}
    told = broker.ask("POST", f"queues/{name_in_path(arguments.queue)}/replay", body)
    row = {"action": "replay", "from": told["queue"], "to": told["to"]}
    if is_dry(arguments):
        row |= {"dry_run": True, "count": told["would"]}
    else:
        row |= Answer(done=told["done"]).told()
    show_one(arguments, row)
    return checked(arguments, told["would"] or 0)


def export(arguments: Namespace, broker: RemoteBroker) -> int:
    """Write messages of a queue to a file, as JSON."""
    path = f"queues/{name_in_path(arguments.queue)}/export"
    lines = broker.lines("POST", path, _choice(arguments))
    if arguments.output is None:
        print_lines(lines)
        return 0
    scratch = arguments.output.with_name(arguments.output.name + ".new")
    try:
        with scratch.open("w") as file:
            file.writelines(line + "\n" for line in lines)
        scratch.replace(arguments.output)
    finally:
        scratch.unlink(missing_ok=True)
    return 0


def export_definitions(arguments: Namespace, broker: RemoteBroker) -> int:
    """Write queues, exchanges, bindings and policies to standard output, as JSON."""
    told = broker.ask("GET", "definitions")
    print(json.dumps(told["document"], indent=None if arguments.json else 2))
    for name in told["left_out"]:
        note(f"{name!r:.80} is a link's own queue, or ends with its broker: left out")
    return 0


def import_definitions(arguments: Namespace, broker: RemoteBroker) -> int:
    """Create what a document defines: ours, RabbitMQ's JSON or Artemis' broker.xml."""
    body = {"document": document_text(arguments.file), "vhost": arguments.vhost}
    told = broker.ask("POST", "definitions", {**body, "dry_run": is_dry(arguments)})
    left = [(each["left_out"], each["reason"]) for each in told["left_out"]]
    show_import(arguments, told["orders"], left, is_dry=is_dry(arguments))
    return checked(arguments, told["changes"])


def _choice(arguments: Namespace) -> dict[str, Any]:
    pairs = choice_of((), None, arguments.properties, None).properties
    said = {"ids": arguments.ids or None, "older_than": arguments.older_than}
    return {**said, "properties": dict(pairs), "subject": arguments.subject}


def add_transactions(subparsers: Subparsers, name: str) -> None:
    """Add the command about branches in doubt."""
    parser = added(subparsers, name, transactions)
    decision = parser.add_mutually_exclusive_group()
    for way in ("--commit", "--rollback", "--forget"):
        decision.add_argument(way, metavar="XID")


def add_resubmit(subparsers: Subparsers, name: str) -> None:
    """Add the command that repairs a message."""
    add_edit(added(subparsers, name, resubmit))


def add_replay(subparsers: Subparsers, name: str) -> None:
    """Add the command that puts messages back from history."""
    parser = added(subparsers, name, replay)
    _add_choice(parser)
    parser.add_argument("--to", metavar="QUEUE", help="where the copies go (default: QUEUE)")
    add_dry_run(parser, "count, change nothing")


def add_export(subparsers: Subparsers, name: str) -> None:
    """Add the command that writes messages to a file."""
    parser = added(subparsers, name, export)
    _add_choice(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="else to standard output")


def add_definitions(subparsers: Subparsers, name: str) -> None:
    """Add the commands about definitions."""
    ways = group(subparsers, name, "Write or read definitions as a document.")
    added(ways, "export", export_definitions)
    parser = added(ways, "import", import_definitions)
    parser.add_argument("file", help="the document; - is standard input")
    add_dry_run(parser, "say what would be done")
    parser.add_argument("--vhost", metavar="NAME", help="of RabbitMQ's: this virtual host")


def _add_choice(parser: ArgumentParser) -> None:
    parser.add_argument("queue", help="the queue of the messages")
    parser.add_argument(
        "--id", type=int, action="append", default=[], metavar="N", dest="ids",
        help="this message; may be given again",
    )  # fmt: skip
    parser.add_argument("--older-than", metavar="AGE", help="90s, 15m, 2h, 7d at least")
    parser.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", dest="properties",
        help="with this application property; may be given again",
    )  # fmt: skip
    parser.add_argument("--subject", metavar="TEXT", help="with this subject")
