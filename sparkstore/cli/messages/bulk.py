"""The commands that change or copy many messages: Spark or conditions choose, the store acts.

    move      to another queue            requeue   to the end of their own
    purge     off the queue, for good     replay    back from history, as copies

Wrong queues are refused before Spark looks for messages, and the root before the JVM starts.

The queue is an argument without a name, as of `browse` and `queue purge`. Earlier versions named it
`--from`, of `replay` `--queue`: both are still understood of all of them, and shown by none.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sparkstore.cli.messages.chosen_messages import Find, add_choice, departed, waiting
from sparkstore.cli.notes import note_unreplayed, shower
from sparkstore.cli.output import fields, json_lines, print_lines, show_row, table
from sparkstore.cli.parsing import add_config, add_dry_run, check_code, command, is_dry
from sparkstore.cli.target import opened_broker, opened_control, opened_root, recovered
from sparkstore.control.broker_control import path_of
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import Action, Answer, Request, new_operation
from sparkstore.operations.choice import choice_of

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.control import bulk_run
    from sparkstore.control.client import AdminClient
    from sparkstore.core.fold import State
    from sparkstore.tables.root import Root

_HOW = (
    "PREDICATE is what may stand after WHERE in a query of queue_messages, about its columns\n"
    "only; Spark finds the messages. --id, --older-than, --property and --subject\n"
    "need no Java, and select the messages for which all of them hold. The running broker\n"
    "changes the messages in some transactions; if none runs, this command does, under the\n"
    "writer's lock. Messages that a consumer has acquired are left alone. After an\n"
    "interruption run it again.\n\n"
)
_SAMPLE = 10
_COMMANDS = frozenset({"move", "requeue", "purge", "replay", "export", "redrive"})
_FORMER = ("--from", "--queue")


def with_queue_as_argument(words: Sequence[str]) -> list[str]:
    """Return a command line with the queue as an argument, where an option names it.

    The last argument is the queue, wherever an option may stand: so the name goes to the end.
    """
    if not words or words[0] not in _COMMANDS:
        return list(words)
    kept, names, rest = [], [], iter(words)
    for word in rest:
        option, is_joined, value = word.partition("=")
        if option not in _FORMER:
            kept.append(word)
        elif is_joined:
            names.append(value)
        else:
            names += [name for name in (next(rest, None),) if name is not None]
    return kept + names


def add(subparsers: Subparsers) -> None:
    """Add the bulk commands: move, requeue, purge and replay."""
    parser = add_bulk(
        subparsers,
        move,
        "move messages to another queue",
        "examples:\n  sparkstore move ROOT orders --to late --older-than 1h --property land=eu\n"
        "  sparkstore move ROOT orders --to late --where"
        ' "enqueued_at < now() - INTERVAL 1 HOUR"',
    )
    parser.add_argument("--to", required=True, metavar="QUEUE", help="where they go")
    add_bulk(
        subparsers,
        requeue,
        "put messages at the end of their queue, with delivery count 0",
        "Messages keep their ids and their order among themselves.\n\n"
        'example:\n  sparkstore requeue ROOT orders --where "delivery_count > 3"',
    )
    add_bulk(
        subparsers,
        purge,
        "delete messages of a queue for good",
        "examples:\n  sparkstore purge ROOT orders --dry-run --where"
        " \"properties['carrier'] = 'UA'\"\n"
        "  sparkstore purge orders --url https://broker.example:8161 --user ann --dry-run",
    )
    parser = add_bulk(
        subparsers,
        replay,
        "put messages from history back on a queue",
        "PREDICATE may also name dequeued_at, outcome (JSON), holder and replayed_to, as history\n"
        "has them. Copies get new ids and the property sparkstore.replayed; a message\n"
        "that has a copy on the target is not put there again.\n\n"
        "An age counts from when a message left.\n\n"
        "examples:\n  sparkstore replay ROOT orders --property land=eu\n"
        '  sparkstore replay ROOT orders --where "dequeued_at > now() - INTERVAL 1 DAY"',
        by_conditions=True,
    )
    parser.add_argument("--to", metavar="QUEUE", help="where the copies go (default: QUEUE)")


def add_bulk(
    subparsers: Subparsers,
    run: Callable[[Namespace], int],
    summary: str,
    more: str,
    *,
    by_conditions: bool = False,
) -> ArgumentParser:
    """Add a command that changes many messages; `by_conditions`: see `add_choice`."""
    parser = command(subparsers, run, summary, _HOW + more, by_url=True)
    add_choice(parser, by_conditions=by_conditions)
    add_dry_run(parser, "count and sample, change nothing")
    add_config(parser)
    return parser


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

    if arguments.url is not None:
        return _act_by_url(arguments, action, {} if to is None else {"to": to})
    if to == arguments.queue:
        message = f"messages of {to!r} cannot move to {to!r}: name another queue"
        raise InvalidRequest(message)

    operation = new_operation()

    def work(control: AdminClient, _root: Root, ids: Iterable[int], show: bulk_run.Show) -> Answer:
        to = arguments.to if action is Action.MOVE else None
        job = bulk_run.Job(action, arguments.queue, to, operation)
        return bulk_run.run(control, job, ids, show)

    return _run(arguments, action, waiting(arguments), work, operation)


def _act_by_url(arguments: Namespace, action: Action, target: dict[str, str]) -> int:
    """Have a broker act on all messages of a queue that nobody holds, or on some by id."""
    body = {**target, "dry_run": is_dry(arguments)}
    answer, seconds = asked(arguments, action, body | chosen_ids(arguments))
    row = {"action": action.value, "from": answer["queue"], **target}
    fates = Answer(*(answer[name] for name in Answer._fields))
    if is_dry(arguments):
        show_row(arguments, row | {"dry_run": True, "count": answer["would"], **fates.counts()})
        return check_code(arguments, answer["would"])
    row |= {"operation": answer["operation"], **fates.counts(), "seconds": seconds}
    show_row(arguments, row)
    return 0


def chosen_ids(arguments: Namespace) -> dict[str, list[int]]:
    """Return the ids of messages that a command names, as a request has them."""
    return {"ids": arguments.ids} if arguments.ids else {}


def asked(arguments: Namespace, action: str, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Ask the broker at a URL for something about the messages of a queue; also the seconds."""
    began = time.monotonic()
    with opened_broker(arguments) as broker:
        answer = broker.ask("POST", path_of("queues", arguments.queue, action), body)
    return answer, round(time.monotonic() - began, 3)


def replay(arguments: Namespace) -> int:
    """Put messages back that history still holds."""
    from sparkstore.content.reader import ContentReader
    from sparkstore.control import bulk_run

    if arguments.url is not None:
        return _replay_by_url(arguments)
    arguments.to = arguments.to or arguments.queue

    def work(control: AdminClient, root: Root, ids: Iterable[int], show: bulk_run.Show) -> Answer:
        return bulk_run.replay(control, ContentReader(root), arguments.to, ids, show)

    return _run(arguments, None, departed(arguments), work)


def _replay_by_url(arguments: Namespace) -> int:
    body = {**chosen_by(arguments), "to": arguments.to, "dry_run": is_dry(arguments)}
    answer, seconds = asked(arguments, "replay", body)
    row = {"action": "replay", "from": answer["queue"], "to": answer["to"]}
    if is_dry(arguments):
        show_row(arguments, row | {"dry_run": True, "count": answer["would"]})
        return check_code(arguments, answer["would"])
    show_row(arguments, row | Answer(done=answer["done"]).counts() | {"seconds": seconds})
    return 0


def chosen_by(arguments: Namespace) -> dict[str, Any]:
    """Return the conditions that a command names, as a request has them."""
    pairs = choice_of((), None, arguments.properties, None).properties
    conditions = {"older_than": arguments.older_than, "subject": arguments.subject}
    return {**chosen_ids(arguments), **conditions, "properties": dict(pairs)}


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
    state = recovered(root)  # an unknown queue is refused before seconds of starting a JVM
    name_queues(arguments, state.queues)
    row, check = _first_fields(arguments, action), _check(arguments, action)
    if is_dry(arguments):
        check_at_rest(state, check)
        with find(root, state) as messages:
            counts = {"count": messages.total()}
            if action is not None:  # a replay makes copies of what nobody has any more
                entries = state.queues[arguments.queue].entries
                left = sum(
                    i in entries and entries[i].acquired_by is not None for i in messages.ids()
                )
                counts = {"count": counts["count"] - left, "left": left}
            _show_sample(arguments, row | {"dry_run": True, **counts}, messages.sample(_SAMPLE))
        note_unreplayed(root)
        return check_code(arguments, counts["count"])
    began = time.monotonic()
    with opened_control(arguments) as control:
        control.run(check)
        with find(root, state) as messages:
            answer = work(control, root, messages.ids(), shower(arguments, row["action"]))
    seconds = round(time.monotonic() - began, 3)
    named = {} if operation is None else {"operation": answer.named(operation)}
    show_row(arguments, row | named | answer.counts() | {"seconds": seconds})
    return 0


def name_queues(arguments: Namespace, queues: Collection[str]) -> None:
    """Replace what the user calls queues (a short name, q::q) by what the store calls them."""
    from sparkstore.core.queue_names import find

    for name in ("queue", "to"):
        queue = getattr(arguments, name, None)
        if queue is not None:
            setattr(arguments, name, find(queue, queues))


def _first_fields(arguments: Namespace, action: Action | None) -> dict[str, Any]:
    """Return the first fields of the result: the action and its queues."""
    row = {"action": "replay" if action is None else action.value, "from": arguments.queue}
    return row | ({"to": arguments.to} if action in {None, Action.MOVE} else {})


def _check(arguments: Namespace, action: Action | None) -> Request:
    """Make a request without messages: it is refused if a queue is wrong."""
    if action is None:
        return Request(Action.PURGE, arguments.to, ())
    return Request(action, arguments.queue, (), arguments.to if action is Action.MOVE else None)


def check_at_rest(state: State, check: Request) -> None:
    """Check a request by the state in Delta, as the store would, without opening the store."""
    from sparkstore.core.queue_arguments import terms_of
    from sparkstore.operations import bulk

    queues = state.queues
    bulk.check(check, lambda name: terms_of(queues[name].detail) if name in queues else None)


def _show_sample(arguments: Namespace, row: dict[str, Any], sample: list[dict[str, Any]]) -> None:
    if arguments.json:
        print_lines(json_lines([row | {"sample": sample}]))
        return
    print_lines(fields(row))
    print_lines(table(sample, list(sample[0]) if sample else ()))
