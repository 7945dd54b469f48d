"""Decides what an administrator asks of queues, exchanges and bindings. Pure.

Both who carry orders out use this: the running broker (`broker_shim.broker.orders.administration`)
and, if none runs, `control.offline`. An order that is given again does nothing twice. What is so
already is told as no change, and what is not there to be taken away is refused, as before.

Decision: `delete` without force refuses what somebody would miss: messages, consumers, a queue that
another one sends its dead letters to, a link's own queue, an exchange with bindings. Bindings of a
queue are no reason: they are part of it, and are told. A link that is attached is never ended by
this, not even by force: its client would go on as if its subscription was there; end its connection
first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from sparkstore.core.durability import WORDS, TerminusDurability
from sparkstore.core.policies import Policy
from sparkstore.core.queue_arguments import (
    arguments_of,
    own_arguments_of,
    terms_of,
)
from sparkstore.core.queue_names import (
    canonical,
    find,
    is_reserved,
    parts_of,
    shown,
)
from sparkstore.core.records import ExchangeBindingKey
from sparkstore.core.state_machine.call_values import Exchange
from sparkstore.core.state_machine.definitions import as_json, as_policies_say, detail_of, queue_of
from sparkstore.core.wiring_arguments import (
    ALTERNATE_EXCHANGE,
    AUTO_DELETE,
    alternate_of,
    check_binding_arguments,
    check_exchange_arguments,
    check_exchange_type,
    deletes_itself,
)
from sparkstore.errors import InvalidRequest
from sparkstore.operations.order_checks import (
    check_alternate,
    check_given,
    check_known,
    check_loss,
    check_name,
    warnings_of,
)
from sparkstore.operations.policy_orders import PolicyFacts, decide_delete, decide_set
from sparkstore.operations.queue_alteration import altered, check_alteration, definition

DEFAULT_EXCHANGES = ("amq.direct", "amq.fanout", "amq.match", "amq.topic")
DURABILITIES = WORDS
"""Of a queue; the place of each is its number."""
_BROKERS_OWN = "amq."


class AdminAction(StrEnum):
    """The actions that an administrator can order.

    Each is declared with the request that asks a broker for it.

    Attributes:
        method: The HTTP method.
        path: Below `/api/v1/`, with what of the order it names in braces.
        fields: What of the order is in the body or, of a DELETE, after the question mark.
    """

    method: str
    path: str
    fields: tuple[str, ...]

    def __new__(cls, value: str, method: str, path: str, *fields: str) -> AdminAction:
        """Make an action that has a request."""
        action = str.__new__(cls, value)
        action._value_, action.method, action.path, action.fields = value, method, path, fields
        return action

    CREATE_QUEUE = "create-queue", "PUT", "queues/{queue}", "arguments", "durability"
    ALTER_QUEUE = "alter-queue", "PATCH", "queues/{queue}", "set", "unset"
    DELETE_QUEUE = "delete-queue", "DELETE", "queues/{queue}", "force", "if_unused", "if_empty"
    CREATE_EXCHANGE = "create-exchange", "PUT", "exchanges/{exchange}", "type", "arguments"
    DELETE_EXCHANGE = "delete-exchange", "DELETE", "exchanges/{exchange}", "force", "if_unused"
    ADD_BINDING = "add-binding", "POST", "bindings", "exchange", "queue", "key", "arguments"
    REMOVE_BINDING = "remove-binding", "DELETE", "bindings", "exchange", "queue", "key"
    SET_POLICY = "set-policy", "PUT", "policies/{key}", "match", "arguments", "priority"
    DELETE_POLICY = "delete-policy", "DELETE", "policies/{key}"


class Order(NamedTuple):
    """An administrator's order about a queue, an exchange or a binding.

    Attributes:
        act: What is to be created, altered, deleted or purged.
        queue: Name of a queue, as somebody says it; of a decided order, as the store has it.
        exchange: Name of the exchange that is created, deleted, or bound to.
        key: The key of a binding; the name of a policy.
        match: The pattern of a policy.
        priority: Of a policy.
        type: The type of a new exchange.
        arguments: Of a new queue, exchange or binding: all of them; of a queue that is altered,
            those that change, where None takes one away.
        durability: The durability of a new queue or exchange, 0 to 2.
        force: Delete it with what is on it and who uses it.
        if_unused: But not, by force either, if somebody uses it: a consumer; of an exchange, a
            binding.
        if_empty: Nor if a message is on it.
    """

    act: AdminAction
    queue: str = ""
    exchange: str = ""
    key: str = ""
    type: str = ""
    arguments: Mapping[str, Any] = {}
    durability: int = 2
    force: bool = False
    if_unused: bool = False
    if_empty: bool = False
    match: str = ""
    priority: int = 0

    @property
    def binding_key(self) -> ExchangeBindingKey:
        """The key of the binding that an order is about."""
        return ExchangeBindingKey(self.exchange, self.queue, self.key)


class OwnLink(NamedTuple):
    """The link that a queue belongs to.

    Attributes:
        name: The name of the link and its client, for a person.
        is_attached: Its client is there.
    """

    name: str
    is_attached: bool


class AdministrationFacts(PolicyFacts, Protocol):
    """The facts that an order is decided by: what exists now. Names are as the store has them."""

    def link_of(self, queue: str) -> OwnLink | None:
        """Return the link whose own queue it is; None: no link's."""

    def senders_of_dead_letters(self, queue: str) -> list[str]:
        """Return the other queues that have this one as their dead-letter queue."""

    def users_of_alternate(self, exchange: str) -> list[str]:
        """Name the queues and exchanges that have this alternate exchange, for a person."""

    def bindings(self) -> Collection[ExchangeBindingKey]:
        """Return the keys of all bindings."""

    def binding_arguments(self, key: ExchangeBindingKey) -> Mapping[str, Any]:
        """Return the arguments of an existing binding."""


class OrderDecision(NamedTuple):
    """The decision of an order: what to change, and what to answer.

    Attributes:
        order: The order, with the queue's name as the store has it.
        answer: The answer for the administrator.
        is_change: False if it is so already.
        detail: The definition that the queue, exchange or binding shall have.
    """

    order: Order
    answer: dict[str, Any]
    is_change: bool = True
    detail: str = ""


def decide(order: Order, facts: AdministrationFacts) -> OrderDecision:
    """Decide what is to be done about an order.

    Raises:
        InvalidRequest: It cannot be; nothing may be changed then.
    """
    decided = _DECISIONS[order.act](order, facts)
    answer = {"act": str(order.act), **decided.answer, "changed": decided.is_change}
    return decided._replace(answer=answer)


def _create_queue(order: Order, facts: AdministrationFacts) -> OrderDecision:
    name = canonical(order.queue)
    check_name("queue", name)
    if is_reserved(name):
        raise InvalidRequest(f"queue {shown(name)}: a name of the broker's own: say another")
    address = parts_of(name)[0]
    if address.startswith(_BROKERS_OWN) or facts.exchange_type(address) is not None:
        message = f"queue {shown(name)}: {shown(address)} is an exchange's name: say another, and"
        message += " bind the queue (sparkstore binding add)"
        raise InvalidRequest(message)
    check_known("queue", name, order.arguments)
    wanted = definition(order.arguments, order.durability)
    check_given("queue", name, own_arguments_of(wanted), facts)
    detail = facts.detail(name)
    own = None if detail is None else altered(detail, {})
    if own not in {None, wanted}:
        message = f"queue {shown(name)} is there as {own}: see sparkstore queue alter"
        raise InvalidRequest(message)
    answer = {"queue": name, "arguments": arguments_of(wanted), **_warnings(name, wanted, facts)}
    return OrderDecision(order._replace(queue=name), answer, detail is None, wanted)


def _alter_queue(order: Order, facts: AdministrationFacts) -> OrderDecision:
    name, detail = _queue(order, facts)
    if not order.arguments:
        message = f"queue {shown(name)}: say what to alter: --set NAME=VALUE or --unset NAME"
        raise InvalidRequest(message)
    standing = own_arguments_of(detail)
    check_known("queue", name, order.arguments.keys() - standing.keys())
    wanted = altered(detail, order.arguments)
    check_given("queue", name, own_arguments_of(wanted), facts)
    check_alteration(name, detail, wanted, facts.standing(name))
    arguments = arguments_of(wanted)
    answer = {"queue": name, "arguments": arguments, **_warnings(name, wanted, facts)}
    return OrderDecision(order._replace(queue=name), answer, arguments != standing, wanted)


def _warnings(queue: str, own: str, facts: AdministrationFacts) -> dict[str, list[str]]:
    """Warn of what a definition leads to, with what policies say of the queue."""
    with_policies = detail_of(as_policies_say(queue_of(queue, own), facts.policies()))
    return warnings_of({queue: with_policies}, facts)


def _delete_queue(order: Order, facts: AdministrationFacts) -> OrderDecision:
    name, detail = _queue(order, facts)
    standing, link = facts.standing(name), facts.link_of(name)
    if link is not None and link.is_attached:
        message = f"queue {shown(name)} is that of {link.name}, which is attached: it goes with"
        message += " it (sparkstore connections ROOT --close N)"
        raise InvalidRequest(message)
    if order.if_unused and standing.consumer_count:
        message = f"queue {shown(name)} has {standing.consumer_count} consumers, so it is in use:"
        raise InvalidRequest(f"{message} end them first (sparkstore connections ROOT --close N)")
    if order.if_empty and standing.depth:
        message = f"queue {shown(name)} has {standing.depth} messages, so it is not empty: purge it"
        raise InvalidRequest(f"{message} first (sparkstore queue purge ROOT {shown(name)})")
    senders = facts.senders_of_dead_letters(name)
    bindings = [key for key in facts.bindings() if key.queue == name]
    losses = [
        (standing.depth, f"{standing.depth} messages"),
        (standing.consumer_count, f"{standing.consumer_count} consumers"),
        (link, "" if link is None else f"the subscription that is {link.name}"),
        (senders, f"where the dead letters of {', '.join(map(shown, senders[:5]))} go"),
    ]
    check_loss("queue", name, [text for has, text in losses if has], is_forced=order.force)
    alternate = terms_of(detail).arguments.alternate_exchange
    answer: dict[str, Any] = {
        "queue": name,
        "messages_lost" if alternate is None else "messages_rerouted": standing.depth,
        "consumers_ended": standing.consumer_count,
        "bindings_removed": len(bindings),
    }
    if alternate is not None:
        answer[ALTERNATE_EXCHANGE] = alternate
    return OrderDecision(order._replace(queue=name), answer)


def _create_exchange(order: Order, facts: AdministrationFacts) -> OrderDecision:
    name = order.exchange
    check_name("exchange", name)
    check_exchange_type(name, order.type)
    arguments = {name: value for name, value in order.arguments.items() if value is not None}
    check_exchange_arguments(name, arguments)
    standing, wanted = facts.exchange_type(name), alternate_of(arguments)
    _check_as_it_is(order, wanted, facts)
    if standing is None and wanted is not None:
        check_alternate("exchange", name, wanted, facts)
    if standing is None and name.startswith(_BROKERS_OWN):
        message = f"exchange {shown(name)}: names with {_BROKERS_OWN} are the broker's: say another"
        raise InvalidRequest(message)
    if "/" in name or "::" in name:
        message = f"exchange {shown(name)}: a client says exchange/key, so no / and no :: in it"
        raise InvalidRequest(message)
    if facts.detail(name) is not None:
        message = f"exchange {shown(name)}: a queue has this name, and would hide it: say another"
        raise InvalidRequest(message)
    answer: dict[str, Any] = {"exchange": name, "type": order.type}
    if wanted is not None:
        answer[ALTERNATE_EXCHANGE] = wanted
    if deletes_itself(arguments):
        answer[AUTO_DELETE] = True
    detail = definition(arguments, order.durability)
    return OrderDecision(order, answer, standing is None, detail)


def _delete_exchange(order: Order, facts: AdministrationFacts) -> OrderDecision:
    name = order.exchange
    _check_exchange(name, facts)
    if name in DEFAULT_EXCHANGES:
        message = f"exchange {shown(name)} is every broker's: it cannot be deleted"
        raise InvalidRequest(message)
    bindings = [key for key in facts.bindings() if key.exchange == name]
    users = facts.users_of_alternate(name)
    if users:
        message = f"exchange {shown(name)} is the alternate of {', '.join(users[:5])}: delete or"
        raise InvalidRequest(f"{message} alter that first")
    losses = [f"{len(bindings)} bindings"] if bindings else []
    if order.if_unused and bindings:
        message = f"exchange {shown(name)} has {losses[0]}, so it is in use: remove them first"
        raise InvalidRequest(message)
    check_loss("exchange", name, losses, is_forced=order.force)
    return OrderDecision(order, {"exchange": name, "bindings_removed": len(bindings)})


def _add_binding(order: Order, facts: AdministrationFacts) -> OrderDecision:
    _check_exchange(order.exchange, facts)
    name, _ = _queue(order, facts)
    if order.key:
        check_name("binding key", order.key)
    key = ExchangeBindingKey(order.exchange, name, order.key)
    kind = facts.exchange_type(order.exchange) or ""
    check_binding_arguments(order.exchange, kind, order.arguments)
    detail = as_json({"arguments": dict(order.arguments)})
    is_there = key in facts.bindings()
    standing = facts.binding_arguments(key) if is_there else order.arguments
    if standing != order.arguments:
        message = f"{shown(name)} is bound to {shown(order.exchange)} by {shown(order.key)} with"
        message += f" {as_json(standing)}: remove that first, or say another key"
        raise InvalidRequest(message)
    answer: dict[str, Any] = {"exchange": order.exchange, "queue": name, "key": order.key}
    if order.arguments:
        answer["arguments"] = dict(order.arguments)
    return OrderDecision(order._replace(queue=name), answer, not is_there, detail)


def _remove_binding(order: Order, facts: AdministrationFacts) -> OrderDecision:
    name = find(order.queue, facts.queues)
    key = ExchangeBindingKey(order.exchange, name, order.key)
    if key not in facts.bindings():
        bound = [binding for binding in facts.bindings() if binding[:2] == key[:2]]
        keys = ", ".join(shown(binding.binding_key) for binding in bound[:5])
        hint = f"its keys are {keys}" if bound else "see the view bindings"
        message = f"{shown(name)} is not bound to {shown(order.exchange)} by {shown(order.key)}: "
        raise InvalidRequest(message + hint)
    answer = {"exchange": order.exchange, "queue": name, "key": order.key}
    return OrderDecision(order._replace(queue=name), answer)


def _set_policy(order: Order, facts: AdministrationFacts) -> OrderDecision:
    policy = Policy(order.key, order.match, order.priority, order.arguments)
    return OrderDecision(order, *decide_set(policy, facts))


def _delete_policy(order: Order, facts: AdministrationFacts) -> OrderDecision:
    return OrderDecision(order, *decide_delete(order.key, facts))


_DECISIONS: Mapping[AdminAction, Callable[[Order, AdministrationFacts], OrderDecision]] = {
    AdminAction.CREATE_QUEUE: _create_queue,
    AdminAction.ALTER_QUEUE: _alter_queue,
    AdminAction.DELETE_QUEUE: _delete_queue,
    AdminAction.CREATE_EXCHANGE: _create_exchange,
    AdminAction.DELETE_EXCHANGE: _delete_exchange,
    AdminAction.ADD_BINDING: _add_binding,
    AdminAction.REMOVE_BINDING: _remove_binding,
    AdminAction.SET_POLICY: _set_policy,
    AdminAction.DELETE_POLICY: _delete_policy,
}


def existing(named: str, facts: AdministrationFacts) -> str:
    """Return the store's name of the queue that somebody means, which must exist.

    Raises:
        InvalidRequest: There is none, or several.
    """
    name = find(named, facts.queues)
    if facts.detail(name) is None:
        message = f"unknown queue {shown(named)}: see sparkstore queues"
        raise InvalidRequest(message)
    return name


def _queue(order: Order, facts: AdministrationFacts) -> tuple[str, str]:
    name = existing(order.queue, facts)
    return name, facts.detail(name) or ""


def _check_exchange(name: str, facts: AdministrationFacts) -> None:
    if facts.exchange_type(name) is None:
        message = f"unknown exchange {shown(name)}: create it first (sparkstore exchange create)"
        raise InvalidRequest(message)


def new_exchange(decided: OrderDecision) -> Exchange:
    """The exchange that a decided order creates."""
    order = decided.order
    durability = TerminusDurability(order.durability)
    return Exchange(order.exchange, order.type, durability, arguments_of(decided.detail))


def _check_as_it_is(order: Order, alternate: str | None, facts: AdministrationFacts) -> None:
    """Refuse to create an exchange that exists with another definition."""
    name = order.exchange
    standing, with_it = facts.exchange_type(name), facts.alternate_of(name)
    if standing not in {None, order.type}:
        message = f"exchange {shown(name)} is there as {standing}: delete it first"
        raise InvalidRequest(message)
    if standing is not None and with_it != alternate:
        message = f"exchange {shown(name)} is there with {_alternate_text(with_it)}, not with"
        raise InvalidRequest(f"{message} {_alternate_text(alternate)}: delete it first")


def _alternate_text(alternate: str | None) -> str:
    name = "none" if alternate is None else shown(alternate)
    return f"{ALTERNATE_EXCHANGE} {name}"
