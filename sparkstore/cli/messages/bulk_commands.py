"""Carry out bulk commands: check the queues, choose by Spark, act by the store, print answers."""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import opened_root, print_lines, recovered
from sparkstore.cli.control import opened_control
from sparkstore.cli.messages.chosen_messages import Find, departed, waiting
from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import fields, json_lines, table
from sparkstore.cli.parsing import check_code
from sparkstore.errors import InvalidRequest
from sparkstore.log_format import is_progress_shown, say
from sparkstore.operations.bulk import Action, Answer, Request, new_operation

if TYPE_CHECKING:
    from sparkstore.control import bulk_run
    from sparkstore.control.client import AdminClient
    from sparkstore.core.fold import State
    from sparkstore.tables.root import Root

_SAMPLE = 10


def move(arguments: Namespace) -> int:
    """Move messages to another queue."""
    return _act(arguments, Action.MOVE, arguments.to)


def requeue(arguments: Namespace) -> int:
    """Put messages at the end of their queue."""
    return _act(arguments, Action.REQUEUE, None)


def purge(arguments: Namespace) -> int:
    """Take messages off a queue for good."""
    return _act(arguments, Action.PURGE, None)


def _act(arguments: Namespace, action: Action, to: str | None) -> int:
    from sparkstore.control import bulk_run

    if to == arguments.queue:
        message = f"messages of {to!r} cannot move to {to!r}: name another queue"
        raise InvalidRequest(message)

    operation = new_operation()

    def work(control: AdminClient, _root: Root, ids: Iterable[int], show: bulk_run.Show) -> Answer:
        to = arguments.to if action is Action.MOVE else None
        job = bulk_run.Job(action, arguments.queue, to, operation)
        return bulk_run.run(control, job, ids, show)

    return _run(arguments, action, waiting(arguments), work, operation)


def replay(arguments: Namespace) -> int:
    """Put messages back that history still holds."""
    from sparkstore.content.reader import ContentReader
    from sparkstore.control import bulk_run

    arguments.to = arguments.to or arguments.queue

    def work(control: AdminClient, root: Root, ids: Iterable[int], show: bulk_run.Show) -> Answer:
        return bulk_run.replay(control, ContentReader(root), arguments.to, ids, show)

    return _run(arguments, None, departed(arguments), work)


Work = Callable[["AdminClient", "Root", Iterable[int], Callable[[Answer], None]], Answer]


def _run(
    arguments: Namespace,
    action: Action | None,
    find: Find,
    work: Work,
    operation: str | None = None,
) -> int:
    """Check the queues, find the messages, and act on them or show them.

    Args:
        arguments: The arguments of the command.
        action: What is asked of the store; None for a replay.
        find: Chooses the messages, with Spark or without.
        work: Does what is asked to these ids, and returns what became of them.
        operation: The name under which history has it; None: under none.
    """
    from sparkstore.config import read_config

    with opened_root(arguments.root, whole=True) as root:
        if arguments.config:
            read_config(arguments.config)  # before seconds of starting a JVM
        return _run_on(root, arguments, action, find, work, operation)


def _run_on(
    root: Root,
    arguments: Namespace,
    action: Action | None,
    find: Find,
    work: Work,
    operation: str | None,
) -> int:
    state = recovered(root)  # a queue that is not there is told before seconds of starting a JVM
    _name_queues(arguments, state.queues)
    told, check = _told(arguments, action), _check(arguments, action)
    if arguments.dry_run or arguments.check:
        _check_at_rest(state, check)
        with find(root, state) as found:
            count = found.total()
            _show_sample(arguments, told, count, found.sample(_SAMPLE))
        note_unreplayed(root)
        return check_code(arguments, count)
    began = time.monotonic()
    with opened_control(arguments.root, arguments.config) as control:
        control.run(check)
        with find(root, state) as found:
            answer = work(control, root, found.ids(), shower(arguments, told))
    seconds = round(time.monotonic() - began, 3)
    named = {} if operation is None else {"operation": answer.named(operation)}
    row = told | named | answer.told() | {"seconds": seconds}
    print_lines(json_lines([row]) if arguments.json else fields(row))
    return 0


def _name_queues(arguments: Namespace, queues: Collection[str]) -> None:
    """Replace what the user calls queues (a short name, q::q) by what the store calls them."""
    from sparkstore.core.queue_names import find

    for name in ("queue", "to"):
        said = getattr(arguments, name, None)
        if said is not None:
            setattr(arguments, name, find(said, queues))


def _told(arguments: Namespace, action: Action | None) -> dict[str, Any]:
    """Return the first fields of the result: the action and its queues."""
    told = {"action": "replay" if action is None else action.value, "from": arguments.queue}
    return told | ({"to": arguments.to} if action in {None, Action.MOVE} else {})


def _check(arguments: Namespace, action: Action | None) -> Request:
    """Make a request without messages: it is refused if a queue is wrong."""
    if action is None:
        return Request(Action.PURGE, arguments.to, ())
    return Request(action, arguments.queue, (), arguments.to if action is Action.MOVE else None)


def export(arguments: Namespace) -> int:
    """Write messages of a queue to a file."""
    if arguments.format == "parquet" and arguments.output is None:
        raise InvalidRequest("--format parquet needs --output FILE")
    with opened_root(arguments.root, whole=True) as root:
        return _export(root, arguments)


def _export(root: Root, arguments: Namespace) -> int:
    from sparkstore.cli.messages.export import contents
    from sparkstore.content.reader import ContentReader

    state = recovered(root)
    _name_queues(arguments, state.queues)
    _check_at_rest(state, Request(Action.PURGE, arguments.queue, ()))
    if arguments.where is None and not (
        arguments.ids or arguments.older_than or arguments.properties or arguments.subject
    ):
        arguments.older_than = "0s"  # all of them, without Java
    with waiting(arguments)(root, state) as chosen:
        show = shower(arguments, {"action": "export"})
        found = _counted(contents(ContentReader(root), chosen.ids()), show)
        _write(arguments, found)
    note_unreplayed(root)
    return 0


def _write(arguments: Namespace, found: Iterable[Any]) -> None:
    from sparkstore.cli.messages.export import as_json, write_parquet

    if arguments.format == "parquet":
        write_parquet(found, arguments.output)
    elif arguments.output is None:
        print_lines(json_lines(as_json(found)))
    else:
        scratch = arguments.output.with_name(arguments.output.name + ".new")
        try:
            with scratch.open("w") as file:
                file.writelines(line + "\n" for line in json_lines(as_json(found)))
            scratch.replace(arguments.output)
        finally:
            scratch.unlink(missing_ok=True)


def _counted(found: Iterable[Any], show: Callable[[Answer], None]) -> Iterator[Any]:
    """Iterate over what was found, and show its count about once a second."""
    shown_at = time.monotonic()
    for number, each in enumerate(found):
        if time.monotonic() - shown_at >= 1:
            shown_at = time.monotonic()
            show(Answer(done=number))
        yield each


def _check_at_rest(state: State, check: Request) -> None:
    """Check a request by the state in Delta, as the store would, without opening the store."""
    from sparkstore.core.queue_arguments import terms_of
    from sparkstore.operations import bulk

    queues = state.queues
    bulk.check(check, lambda name: terms_of(queues[name].detail) if name in queues else None)


def _show_sample(
    arguments: Namespace, told: dict[str, Any], count: int, rows: list[dict[str, Any]]
) -> None:
    row = told | {"dry_run": True, "count": count}
    if arguments.json:
        print_lines(json_lines([row | {"sample": rows}]))
        return
    print_lines(fields(row))
    print_lines(table(rows, list(rows[0]) if rows else ()))


def shower(arguments: Namespace, told: dict[str, Any]) -> Callable[[Answer], None]:
    """Make what shows the progress of a long command on standard error, if that is wanted."""
    is_shown = is_progress_shown(arguments.progress)

    def show(total: Answer) -> None:
        if is_shown:
            done = f"{total.done:,} done, {total.left:,} left alone, {total.gone:,} gone"
            say(str(told["action"]), done, logging.INFO)

    return show
