"""The command `transactions`: branches in doubt, and an operator's decision about one."""

from __future__ import annotations

import os
import pwd
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparkstore.cli.output import Row, show_row, time_of, time_said
from sparkstore.cli.parsing import add_config, command
from sparkstore.cli.target import opened_control, show_list
from sparkstore.core.xids import xid_of, xid_text
from sparkstore.operations.branch_orders import BranchAct, BranchOrder

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.control.http_client import BrokerClient
    from sparkstore.core.fold import State

_COLUMNS = ("xid", "state", "since", "holder", "operations")
_ACTS = {
    "commit": (BranchAct.COMMIT, "commit this branch"),
    "rollback": (BranchAct.ROLL_BACK, "roll this branch back"),
    "forget": (BranchAct.FORGET, "forget an operator's decision that the coordinator knows"),
}


def add(subparsers: Subparsers) -> None:
    """Add the command `transactions` to the command line."""
    parser = command(
        subparsers,
        transactions,
        "list branches of distributed transactions in doubt, or decide one",
        "Only its coordinator knows whether a branch is to be committed, so decide one only if\n"
        "the coordinator is gone for good. The decision is remembered, with your name, until the\n"
        "coordinator decides the same or forgets the branch; a different decision is refused. An\n"
        "xid is FORMAT:GLOBAL:BRANCH, the ids in hexadecimal.\n\n"
        "examples:\n  sparkstore transactions ROOT\n"
        "  sparkstore transactions ROOT --rollback 1:6f72646572:71",
        by_url=True,
    )
    decision = parser.add_mutually_exclusive_group()
    for name, (_act, what) in _ACTS.items():
        decision.add_argument(f"--{name}", metavar="XID", help=what)
    add_config(parser)


def transactions(arguments: Namespace) -> int:
    """Show branches in doubt, or decide one."""
    for name, (act, _what) in _ACTS.items():
        if (xid := getattr(arguments, name)) is not None:
            order = BranchOrder(act, xid_text(xid_of(xid)), operator())
            with opened_control(arguments) as control:
                answer = control.branch(order)
            show_row(arguments, answer)
            return 0
    return show_list(arguments, _COLUMNS, _of_tables, _of_broker)


def _of_tables(state: State) -> Iterator[Row]:
    from sparkstore.core.state_machine.branches import prepared_in

    for branch in prepared_in(state):
        row = {name: getattr(branch, name) for name in _COLUMNS}
        yield row | {"xid": xid_text(branch.xid), "since": time_of(branch.since)}


def _of_broker(broker: BrokerClient) -> Iterator[Row]:
    return ({**row, "since": time_said(row["since"])} for row in broker.pages("transactions"))


def operator() -> str:
    """Return the person who gives an order: this process's user, and who used sudo to be it."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    by_sudo = os.environ.get("SUDO_USER")
    return f"{by_sudo} (as {name})" if by_sudo else name
