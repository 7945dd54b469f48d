"""Decide who may do what on which addresses. Pure.

Without any rule everybody who got in may do everything. With one or more, what no rule allows is
refused; rules only allow, so their order means nothing.

    permissions = [
      {who = ["role:shop"], address = "orders.#", allow = ["read", "write"]},
      {who = ["ann"], address = "prices::ann", allow = ["read"]},
      {who = ["*"], address = "temporary", allow = ["create", "read", "write"]},
    ]

    read     receive, browse, subscribe
    write    send
    create   have a queue, a durable subscription, an exchange or a binding made
    delete   purge or delete what others use: queues, exchanges, bindings
    admin    all of these, and get at the queue of a subscription by its name

Which of them an act needs is in `rights`.

`address` is a pattern of words (`*` one, `#` any number) that an address or an exchange's name is
held against. With `::` the second half is one for the queue on it. Queues that a client has the
broker name (dynamic ones, for answers) are on the address `temporary`, and nothing else is. A rule
for that word is for them alone, and what a client named so, if an older version let it, has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from broker_shim.addressing.topics import TopicBindings
from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.users import ANONYMOUS, EVERYBODY, ROLE_PREFIX, check_name
from sparkstore.core.queue_names import SEPARATOR, TEMPORARY, WordPattern, words_of
from sparkstore.settings_file import check_names


class Permission(StrEnum):
    """The permissions that a rule can give."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ADMIN = "admin"


class AccessTarget(NamedTuple):
    """Target of a permission: an address or an exchange, and a queue on it if one is meant.

    Attributes:
        address: Address of the queue, or the exchange's name; `temporary` if the broker named it.
        queue: On that address; None: any.
        is_named_by_broker: A queue that a client had the broker name.
    """

    address: str
    queue: str | None = None
    is_named_by_broker: bool = False


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a connection's peer.

    Attributes:
        name: A user's, a certificate's, or `anonymous`.
        roles: The roles that the users file had when it logged in.
    """

    name: str = ANONYMOUS
    roles: frozenset[str] = field(default_factory=frozenset)

    def is_one_of(self, who: frozenset[str]) -> bool:
        """True if a rule for these is for this one."""
        return (
            EVERYBODY in who
            or self.name in who
            or any(ROLE_PREFIX + role in who for role in self.roles)
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: one line of `permissions`.

    Attributes:
        who: Names of users, `role:` and a role's name, `*`.
        address: A pattern; `pattern::pattern` for queues.
        allow: What they may do there.
    """

    who: frozenset[str]
    address: str
    allow: frozenset[Permission]


class Permissions:
    """The rules of all permissions, found by address.

    Attributes:
        rules: All of them, in their order.
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._addresses, self._queues = TopicBindings(), TopicBindings()
        self._for_any_queue: set[str] = set()
        self._for_replies: set[str] = set()
        for number, rule in enumerate(self.rules):
            address, separator, queue = rule.address.partition(SEPARATOR)
            self._addresses.bind(address, str(number))
            if address == TEMPORARY:
                self._for_replies.add(str(number))
            if separator:
                self._queues.bind(queue, str(number))
            else:
                self._for_any_queue.add(str(number))

    def __bool__(self) -> bool:
        """False if there is no rule, and everything is allowed."""
        return bool(self.rules)

    def allow_anywhere(self, principal: Principal, act: Permission) -> bool:
        """True if the client may do this in any place."""
        return not self or any(
            not rule.allow.isdisjoint({act, Permission.ADMIN}) and principal.is_one_of(rule.who)
            for rule in self.rules
        )

    def allow_all_of(self, principal: Principal, act: Permission, match: str) -> bool:
        """True if one rule lets the client do this on all addresses of a pattern, also to come.

        What only several rules together cover is refused, and so is what they allow on some queues
        of an address.
        """
        return not self or any(
            covers(rule.address, match)
            and not rule.allow.isdisjoint({act, Permission.ADMIN})
            and principal.is_one_of(rule.who)
            for rule in self.rules
        )

    def allow(self, principal: Principal, act: Permission, place: AccessTarget) -> bool:
        """True if the client may do this in that place."""
        if not self:
            return True
        fitting = self._addresses.route(place.address)
        if not place.is_named_by_broker:
            fitting = fitting - self._for_replies
        named = set() if place.queue is None else self._queues.route(place.queue)
        return any(
            not rule.allow.isdisjoint({act, Permission.ADMIN}) and principal.is_one_of(rule.who)
            for rule in (self.rules[int(n)] for n in fitting & (self._for_any_queue | named))
        )


def covers(rule: str, match: str) -> bool:
    """True only if a rule's pattern fits every queue on every address that a pattern fits.

    It errs to false (`WordPattern.includes`).
    """
    address, _, queue = rule.partition(SEPARATOR)
    if address == TEMPORARY or words_of(queue or "#") != ("#",):
        return False
    return WordPattern(words_of(address)).includes(words_of(match))


def rule_of(item: Any) -> Rule:
    """A rule as `[security] permissions` says it.

    Raises:
        InvalidRequest: It is none; says what is wrong.
    """
    if isinstance(item, Mapping):
        check_names(item, ("who", "address", "allow"), "key", "of [security] permissions")
    if not isinstance(item, Mapping) or len(item) != 3:
        message = f"[security] permissions: {item!r}: say who, address and allow, and nothing else"
        raise InvalidRequest(message)
    address = item["address"]
    if not isinstance(address, str) or not all(address.split(SEPARATOR, 1)):
        message = f'[security] permissions: address {address!r}: say a pattern, such as "orders.#"'
        raise InvalidRequest(message)
    who, allow = (_texts(item, name) for name in ("who", "allow"))
    check_who(who)
    if unknown := allow - {*Permission}:
        message = f"[security] permissions: {min(unknown)!r}: allow some of {', '.join(Permission)}"
        raise InvalidRequest(message)
    return Rule(who, address, frozenset(map(Permission, allow)))


def check_who(who: Iterable[str]) -> None:
    """Check that texts are names of users or roles, or `*`.

    Raises:
        InvalidRequest: One is not.
    """
    for name in {*who} - {EVERYBODY, ANONYMOUS}:
        check_name(
            name.removeprefix(ROLE_PREFIX), "role" if name.startswith(ROLE_PREFIX) else "user"
        )


def _texts(item: Mapping[str, Any], name: str) -> frozenset[str]:
    listed: Iterable[Any] = item[name] if isinstance(item[name], list) else ()
    texts = [text for text in listed if isinstance(text, str)]
    if not texts or len(texts) != len(item[name]):
        message = f'[security] permissions: {name} is {item[name]!r}: say a list, such as ["ann"]'
        raise InvalidRequest(message)
    return frozenset(texts)
