"""The commands `policy …`: arguments for all queues whose address fits a pattern."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparkstore.cli.administration.orders import (
    ARGUMENT_HELP,
    add_list,
    add_order,
    add_set,
    given_arguments,
    ordered,
)
from sparkstore.cli.output import Row
from sparkstore.cli.parsing import group
from sparkstore.cli.target import show_list
from sparkstore.core.policies import policies_of
from sparkstore.operations.administration import AdminAction, Order

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.control.http_client import BrokerClient
    from sparkstore.core.fold import State

_COLUMNS = ("policy", "match", "priority", "arguments", "queues")
_POLICY = ("policy", "name of the policy")


def add(subparsers: Subparsers) -> None:
    """Add the commands `policy …` to the command line."""
    policy = group(subparsers, "policy", "list, set or delete policies of queues by pattern")
    summary = "list policies, those that count most first"
    add_list(policy, list_policies, summary, "policy list ROOT")
    parser = add_order(
        *(policy, set_policy, "set"),
        "give all queues on addresses that fit a pattern these arguments",
        "In a pattern * is any one word of an address, # any number of them. What a queue says\n"
        "itself wins; then the highest priority, then the first name. A policy of this name is\n"
        "replaced. It tells which queues say otherwise, and how many messages leave their queue\n"
        "at once, as they failed too often (over_delivered).\n\n"
        + ARGUMENT_HELP
        + "example:\n  sparkstore policy set ROOT orders --match 'orders.#'"
        " --set max_delivery_count=5",
        _POLICY,
    )
    parser.add_argument("--match", required=True, metavar="PATTERN", help="of the addresses")
    parser.add_argument("--priority", type=int, default=0, help="the highest counts (default: 0)")
    add_set(parser, "an argument of those queues; may be given again")
    add_order(
        *(policy, delete_policy, "delete"),
        "delete a policy; queues have only what they and other policies say",
        "example:\n  sparkstore policy delete ROOT orders",
        _POLICY,
    )


def list_policies(arguments: Namespace) -> int:
    """Show each policy, and on how many queues it is about."""

    def of_tables(state: State) -> Iterator[Row]:
        for policy in policies_of(state.configured):
            count = sum(map(policy.fits, state.queues))
            yield {"policy": policy.name, **policy.detail, "queues": count}

    def of_broker(broker: BrokerClient) -> Iterator[Row]:
        return ({"policy": row.pop("name"), **row} for row in broker.pages("policies"))

    return show_list(arguments, _COLUMNS, of_tables, of_broker)


def set_policy(arguments: Namespace) -> int:
    """Give queues by pattern the arguments that the command says."""
    values, name = given_arguments(arguments.given), arguments.policy
    order = Order(AdminAction.SET_POLICY, key=name, arguments=values, match=arguments.match)
    return ordered(arguments, order._replace(priority=arguments.priority))


def delete_policy(arguments: Namespace) -> int:
    """Delete the policy that the command names."""
    return ordered(arguments, Order(AdminAction.DELETE_POLICY, key=arguments.policy))
