"""Carry out commands by a broker's HTTP port, and print their answers as the local commands do."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from sparkstore.cli.commands import QUEUE_COLUMNS, SQL_ROWS, print_answer, print_lines, row_limit
from sparkstore.cli.messages.undo import undo_code
from sparkstore.cli.output import Row, fields, json_lines, one_line, table
from sparkstore.cli.queries.query_result import QueryResult
from sparkstore.cli.remote.http_client import RemoteBroker, name_in_path
from sparkstore.cli.remote.remote_parsing import is_dry
from sparkstore.exit_codes import ExitCode
from sparkstore.operations.root_check import Figure, judge, nagios_line, threshold_of, worst

_BROWSED, _OPERATIONS = 20, 100
_MOST_ROWS = 10_000
"""An answer to SQL has no more of them."""
_CONNECTION = (
    *("connection", "member", "user", "peer", "tls", "container", "links", "connected_at", "open"),
)


def queues(arguments: Namespace, broker: RemoteBroker) -> int:
    """Show every queue with its figures."""
    found = map(queue_row, broker.pages("queues", match=arguments.match))
    rows = [{name: row[name] for name in QUEUE_COLUMNS} for row in found]
    return show(arguments, rows, QUEUE_COLUMNS)


def queue_row(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer about a queue by the columns that the command has for a root."""
    values = {name: each["value"] for name, each in answer["effective"].items()}
    return {
        "queue": answer["name"],
        **{name: answer[name] for name in ("depth", "bytes", "acquired", "delayed")},
        "oldest_age_s": answer["oldest_age_s"] if answer["depth"] else None,
        "not_durable": answer["not_durable"],
        "arguments": values or None,
    }


def browse(arguments: Namespace, broker: RemoteBroker) -> int:
    """Show messages of a queue in its order."""
    path = f"queues/{name_in_path(arguments.queue)}/messages"
    limit = (
        arguments.limit if arguments.limit is not None else (None if arguments.json else _BROWSED)
    )
    rows: list[Row] = [*islice(broker.pages(path), limit or None)]
    if arguments.body:
        rows = [broker.ask("GET", f"{path}/{each['id']}") for each in rows]
    rows = [{**each, "enqueued_at": time_said(each["enqueued_at"])} for each in rows]
    if arguments.json:
        return show(arguments, rows)
    if arguments.body:
        for row in rows:
            print_lines(["", *fields(row)])
        return 0
    columns = ("id", "enqueued_at", "bytes", "acquired_by", "delivery_count", "priority", "subject")
    more = ("properties", "death")
    shown = [
        {name: each[name] for name in columns} | {name: _pairs(each[name]) for name in more}
        for each in rows
    ]
    return show(arguments, shown, (*columns, *more))


def purge(arguments: Namespace, broker: RemoteBroker) -> int:
    """Take messages off a queue for good."""
    return _bulk(arguments, broker, "purge", {})


def requeue(arguments: Namespace, broker: RemoteBroker) -> int:
    """Put messages at the end of their queue."""
    return _bulk(arguments, broker, "requeue", {})


def move(arguments: Namespace, broker: RemoteBroker) -> int:
    """Move messages to another queue."""
    return _bulk(arguments, broker, "move", {"to": arguments.to})


def redrive(arguments: Namespace, broker: RemoteBroker) -> int:
    """Put dead letters back where they came from."""
    more = {"to": arguments.to, "limit": arguments.limit}
    return _bulk(arguments, broker, "redrive", {k: v for k, v in more.items() if v is not None})


def undo(arguments: Namespace, broker: RemoteBroker) -> int:
    """Take back what a bulk command did."""
    path = f"operations/{name_in_path(arguments.operation)}/undo"
    told = broker.ask("POST", path, {"dry_run": is_dry(arguments)})
    show_one(arguments, told)
    would = sum(map(sum, (told[each].values() for each in ("restored", "removed", "shifted"))))
    if not is_dry(arguments):
        lost = sum(map(len, told["lost"].values()))
        return undo_code(
            told["done"] or told["queue"] is not None, lost + told["left"] + told["gone"]
        )
    return checked(arguments, would + (told["queue"] is not None))


def operations(arguments: Namespace, broker: RemoteBroker) -> int:
    """List bulk commands that history has."""
    columns = ("operation", "at", "action", "queue", "to", "messages", "undoes", "undone_by")
    found = broker.ask("GET", "operations", limit=arguments.limit or _OPERATIONS)
    return show(
        arguments, [{**each, "at": time_said(each["at"])} for each in found["items"]], columns
    )


def history(arguments: Namespace, broker: RemoteBroker) -> int:
    """Show every event of a message."""
    columns = ("position", "at", "kind", "queue", "holder", "delivery_count", "detail")
    found = broker.ask("GET", f"messages/{name_in_path(arguments.message)}/history", limit=1_000)
    rows = [{**each, "at": time_said(each["at"])} for each in found["items"]]
    if not arguments.json:
        rows = [{name: each[name] for name in columns} for each in rows]
    return show(arguments, rows, columns)


def sql(arguments: Namespace, broker: RemoteBroker) -> int:
    """Answer one SELECT over the views, in DuckDB's SQL."""
    limit = row_limit(arguments, SQL_ROWS) or _MOST_ROWS
    body = {"statement": arguments.statement, "limit": limit, "as_of": arguments.as_of}
    told = broker.ask("POST", "sql", body)
    columns, types = ([each[key] for each in told["columns"]] for key in ("name", "type"))
    found = QueryResult(columns, told["rows"], told["is_cut"], types)
    for_more = f"--limit shows up to {_MOST_ROWS}"
    print_answer(found, limit, for_more, as_json=arguments.json)
    return 0


def connections(arguments: Namespace, broker: RemoteBroker) -> int:
    """Show clients that are connected, or end one connection."""
    if arguments.close is not None:
        path = f"connections/{arguments.close}"
        answer = broker.ask("DELETE", path, member=arguments.member)
        row = {"act": answer["act"], **answer["details"], "changed": answer["changed"]}
        show_one(arguments, {**row, "connected_at": time_said(row["connected_at"])})
        return 0
    rows = [
        {
            **{name: each.get(name) for name in _CONNECTION},
            "connected_at": time_said(each["connected_at"]),
        }
        for each in broker.pages("connections")
        if arguments.member is None or each.get("member") == arguments.member
    ]
    return show(arguments, rows, _CONNECTION)


def check(arguments: Namespace, broker: RemoteBroker) -> int:
    """Judge depth, age and dead letters of a broker's queues, as a plugin of Nagios."""
    limits = dict(
        threshold_of(name, told, is_age=name == "age")
        for name in ("depth", "age", "dead")
        for told in getattr(arguments, name)
    )
    found = [*broker.pages("queues")]
    dead = {each["name"] for each in broker.pages("dead-letters")}
    figures = [
        figure
        for each in found
        for figure in (
            Figure("depth", each["name"], each["depth"]),
            Figure("age", each["name"], each["oldest_age_s"] or 0, "s"),
            *([Figure("dead", each["name"], each["depth"])] if each["name"] in dead else []),
        )
    ]
    judged = judge(figures, limits)
    summary = f"{sum(each['depth'] for each in found)} messages on {len(found)} queues"
    if arguments.json:
        print_lines(json_lines([{"status": worst(judged).name, "summary": summary}]))
    else:
        print_lines([one_line(nagios_line(judged, summary))])
    return int(worst(judged))


def _bulk(arguments: Namespace, broker: RemoteBroker, action: str, more: dict[str, Any]) -> int:
    dry, chosen = is_dry(arguments), {"ids": arguments.ids} if arguments.ids else {}
    body = {**more, "dry_run": dry, **chosen}
    told = broker.ask("POST", f"queues/{name_in_path(arguments.queue)}/{action}", body)
    row = {"action": action, "from": told.pop("queue"), **told}
    if not dry:
        row.pop("would", None)  # a redrive tells by queue
    show_one(arguments, row)
    would = sum(told["to"].values()) if action == "redrive" else told.get("would") or 0
    return checked(arguments, would)


def checked(arguments: Namespace, would: int) -> int:
    """Return the exit code of a command that changed, or would change, so many things."""
    return ExitCode.WOULD_CHANGE if arguments.check and would else ExitCode.DONE


def show(arguments: Namespace, rows: Sequence[Row], columns: Sequence[str] = ()) -> int:
    """Print rows: a table for people, an object a line for machines."""
    print_lines(json_lines(rows) if arguments.json else table(rows, columns))
    return 0


def show_one(arguments: Namespace, row: Row) -> None:
    """Print one answer: a line for each field for people, an object for machines."""
    print_lines(json_lines([row]) if arguments.json else fields(row))


def _pairs(values: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def time_said(said: str) -> datetime | str:
    """Read a time of an answer."""
    try:
        return datetime.fromisoformat(said)
    except ValueError:  # a year that no calendar has
        return said
