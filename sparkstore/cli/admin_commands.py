"""Carry out an administrator's commands: give an order to whatever serves the root, and print."""

from __future__ import annotations

import json
import logging
import os
import pwd
from argparse import Namespace
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sparkstore.cli.commands import (
    opened_root,
    print_lines,
    queue_named,
    recovered,
    tell_unreplayed,
)
from sparkstore.cli.control import opened_control
from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import Row, fields, json_lines, table, time_of
from sparkstore.cli.parsing import check_code
from sparkstore.core.xids import xid_of, xid_text
from sparkstore.errors import InvalidRequest, StoreError, Unavailable
from sparkstore.log_format import is_progress_shown, say
from sparkstore.operations.administration import DURABILITIES, AdminAction, Order
from sparkstore.operations.bulk import new_operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkstore.control.client import SocketControl
    from sparkstore.operations.bulk import Answer

_NAMES = {"alternate_exchange", "dead_letter_queue", "last_value_key"}
"""Arguments whose value is a text, whatever it looks like."""
_BRANCH_COLUMNS = ("xid", "state", "since", "holder", "operations")
_COLUMNS = (
    "member",
    "connection",
    "peer",
    "user",
    "tls",
    "container",
    "links",
    "connected_at",
    "open",
)


def create_queue(arguments: Namespace) -> int:
    """Create the queue that the command names."""
    return _order(
        arguments,
        Order(
            AdminAction.CREATE_QUEUE,
            arguments.queue,
            arguments=given_arguments(arguments.given),
            durability=DURABILITIES.index(arguments.durability),
        ),
    )


def alter_queue(arguments: Namespace) -> int:
    """Change some arguments of a queue."""
    changes = given_arguments(arguments.given)
    if twice := changes.keys() & set(arguments.unset):
        message = f"--set and --unset of {min(twice)!r}: say one of them"
        raise InvalidRequest(message)
    changes |= dict.fromkeys(arguments.unset)
    return _order(arguments, Order(AdminAction.ALTER_QUEUE, arguments.queue, arguments=changes))


def delete_queue(arguments: Namespace) -> int:
    """Delete the queue that the command names."""
    order = Order(AdminAction.DELETE_QUEUE, arguments.queue, force=arguments.force)
    limits = {"if_unused": arguments.if_unused, "if_empty": arguments.if_empty}
    if arguments.dry_run or arguments.check:
        return _order(arguments, order._replace(**limits))
    with opened_control(arguments.root, arguments.config) as control:
        told = control.order(order._replace(**limits))
        with suppress(StoreError):  # the queue is gone; its id can be asked for later
            control.flush()
    _show(arguments, {**told, "operation": _deletion(arguments, told["queue"])})
    return 0


def _deletion(arguments: Namespace, queue: str) -> str | None:
    """Name a deletion that was just done; None: `sparkstore operations` will list it."""
    from sparkstore.recovery.operation_log import deletion_of
    from sparkstore.storage.objects import is_object_uri

    if is_object_uri(arguments.root):
        return None  # of a bucket, all of history would have to come here
    try:
        with opened_root(arguments.root) as root:
            return deletion_of(root, queue)
    except StoreError:
        return None


def create_exchange(arguments: Namespace) -> int:
    """Create the exchange that the command names."""
    given, name, kind = given_arguments(arguments.given), arguments.exchange, arguments.type
    act = AdminAction.CREATE_EXCHANGE
    return _order(arguments, Order(act, exchange=name, type=kind, arguments=given))


def delete_exchange(arguments: Namespace) -> int:
    """Delete the exchange that the command names."""
    order = Order(AdminAction.DELETE_EXCHANGE, exchange=arguments.exchange, force=arguments.force)
    return _order(arguments, order._replace(if_unused=arguments.if_unused))


def set_policy(arguments: Namespace) -> int:
    """Give queues by pattern the arguments that the command says."""
    given, name = given_arguments(arguments.given), arguments.policy
    order = Order(AdminAction.SET_POLICY, key=name, arguments=given, match=arguments.match)
    return _order(arguments, order._replace(priority=arguments.priority))


def delete_policy(arguments: Namespace) -> int:
    """Delete the policy that the command names."""
    return _order(arguments, Order(AdminAction.DELETE_POLICY, key=arguments.policy))


def add_binding(arguments: Namespace) -> int:
    """Bind a queue to an exchange."""
    order = _binding(AdminAction.ADD_BINDING, arguments)
    return _order(arguments, order._replace(arguments=given_headers(arguments.given)))


def remove_binding(arguments: Namespace) -> int:
    """Take a binding away."""
    return _order(arguments, _binding(AdminAction.REMOVE_BINDING, arguments))


def purge_queue(arguments: Namespace) -> int:
    """Take everything off a queue."""
    if arguments.dry_run or arguments.check:
        return _purge_dry(arguments)
    is_shown = is_progress_shown(arguments.progress)

    def show(so_far: Answer) -> None:
        if is_shown:
            done = f"{so_far.done:,} done, {so_far.left:,} left alone, {so_far.gone:,} gone"
            say("purge", done, logging.INFO)

    operation = new_operation()
    with opened_control(arguments.root, arguments.config) as control:
        answer = control.purge(arguments.queue, show, operation)
    name = answer.named(operation)
    told = {"act": "purge-queue", "queue": arguments.queue, "operation": name}
    _show(arguments, {**told, **answer.told()})
    return 0


def connections(arguments: Namespace) -> int:
    """Show the clients that are connected, or end one connection."""
    with _broker(arguments) as broker:
        if arguments.close is not None:
            closed = broker.close_connection(arguments.close, arguments.member)
            _show(arguments, {**closed, "connected_at": time_of(closed["connected_at"])})
            return 0
        found, silent = broker.connections()
    for member in silent:
        say("sparkstore connections", f"member {member} did not answer")
    rows = [{name: each.get(name) for name in _COLUMNS} for each in found]
    if arguments.member is not None:
        rows = [row for row in rows if row["member"] == arguments.member]
    for row in rows:
        row["connected_at"] = time_of(row["connected_at"])
    print_lines(json_lines(rows) if arguments.json else table(rows, _COLUMNS))
    return 0


def transactions(arguments: Namespace) -> int:
    """Branches in doubt; or decide one."""
    from sparkstore.operations.branch_orders import BranchAct, BranchOrder

    for act, xid in (
        (BranchAct.COMMIT, arguments.commit),
        (BranchAct.ROLL_BACK, arguments.rollback),
        (BranchAct.FORGET, arguments.forget),
    ):
        if xid is not None:
            order = BranchOrder(act, xid_text(xid_of(xid)), operator())
            with opened_control(arguments.root, arguments.config) as control:
                told = control.branch(order)
            _show(arguments, told)
            return 0
    return _show_branches(arguments)


def _show_branches(arguments: Namespace) -> int:
    from sparkstore.core.state_machine.branches import prepared_in

    with opened_root(arguments.root) as root:
        rows = [
            {
                "xid": xid_text(each.xid),
                "state": each.state,
                "since": time_of(each.since),
                "holder": each.holder,
                "operations": each.operations,
            }
            for each in prepared_in(recovered(root))
        ]
        print_lines(json_lines(rows) if arguments.json else table(rows, _BRANCH_COLUMNS))
        tell_unreplayed(arguments, root)
    return 0


def operator() -> str:
    """Return the person who gives an order: this process's user, and who used sudo to be it."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    by_sudo = os.environ.get("SUDO_USER")
    return f"{by_sudo} (as {name})" if by_sudo else name


def _order(arguments: Namespace, order: Order) -> int:
    if arguments.dry_run or arguments.check:
        return _order_dry(arguments, order)
    with opened_control(arguments.root, arguments.config) as control:
        told = control.order(order)
    _show(arguments, told)
    return 0


def _order_dry(arguments: Namespace, order: Order) -> int:
    """Decide an order by what the tables have, as a root at rest would; consumers are unknown."""
    from sparkstore.operations.administration import decide
    from sparkstore.operations.root_at_rest import StateFacts

    with opened_root(arguments.root, whole=True) as root:
        decided = decide(order, StateFacts(recovered(root)))
        _show(arguments, {"dry_run": True, **decided.answer})
        note_unreplayed(root)
    return check_code(arguments, decided.is_change)


def _purge_dry(arguments: Namespace) -> int:
    with opened_root(arguments.root, whole=True) as root:
        state = recovered(root)
        queue = queue_named(arguments, state)
        entries = state.queues[queue].entries.values()
        held = sum(entry.acquired_by is not None for entry in entries)
        told = {"act": "purge-queue", "queue": queue, "dry_run": True}
        _show(arguments, {**told, "count": len(entries) - held, "left": held})
        note_unreplayed(root)
    return check_code(arguments, len(entries) - held)


def _binding(act: AdminAction, arguments: Namespace) -> Order:
    return Order(act, arguments.queue, arguments.exchange, arguments.key)


def given_arguments(said: Iterable[str]) -> dict[str, Any]:
    """Arguments as `NAME=VALUE` tells them: numbers, true and false, names.

    Raises:
        InvalidRequest: It is another text, or there twice.
    """
    texts = _texts(said).items()
    return {name: value if name in _NAMES else _plain(value) for name, value in texts}


def given_headers(said: Iterable[str]) -> dict[str, Any]:
    """Headers of a binding as `NAME=VALUE` tells them. Raises InvalidRequest."""
    return {name: _header(value) for name, value in _texts(said).items()}


def _texts(said: Iterable[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for each in said:
        name, equals, value = each.partition("=")
        if not name or not equals:
            message = f"--set {each!r}: say NAME=VALUE"
            raise InvalidRequest(message)
        if name in given:
            message = f"--set {name!r} is there twice: say it once"
            raise InvalidRequest(message)
        given[name] = value
    return given


def _header(value: str) -> Any:
    """The value of a header: what is no number, true, false, null or quoted text is a text."""
    try:
        found = json.loads(value, parse_constant=str)
    except ValueError:
        return value
    return value if isinstance(found, list | dict) else found


def _plain(value: str) -> Any:
    try:
        found = json.loads(value, parse_constant=str)
    except ValueError:
        return value
    return found if isinstance(found, int) else value


@contextmanager
def _broker(arguments: Namespace) -> Iterator[SocketControl]:
    """The broker that runs; its connection closed in the end."""
    from sparkstore.control.client import connect_to

    served = connect_to(arguments.root)
    if served is None:
        message = f"no broker serves {arguments.root}, so nobody is connected: start one"
        raise Unavailable(message)
    try:
        yield served
    finally:
        served.close()


def _show(arguments: Namespace, row: Row) -> None:
    print_lines(json_lines([row]) if arguments.json else fields(row))
