"""Policies: arguments for all queues on addresses that fit a pattern, changed while they run. Pure.

    {"match": "orders.#", "priority": 10, "arguments": {"message_ttl_ms": 60000, …}}

A policy is an object of a broker's configuration (`CATEGORY`, its name). A pattern has words parted
by dots: `*` is any one word, `#` any number of them. Of several that fit a queue, each argument is
that of the highest priority, then of the first name. What a queue itself says wins over all.

Why no road misses one: what policies say of a queue stands in its definition, as the argument
`policy`, which nobody but the store writes. So whoever reads a definition (the store when it
admits, a broker that dispatches, a member, a view, a replica) has it, and none of them knows
policies. The record that sets a policy and those that give queues their new definitions are one
call: one group of the log and one Delta commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sparkstore.core.queue_arguments import POLICY, target_of
from sparkstore.core.queue_names import WordPattern, is_reserved, parts_of, shown, words_of
from sparkstore.errors import InvalidRequest

CATEGORY = "sparkstore.policy"


class Policy(NamedTuple):
    """Arguments for queues on some addresses.

    Attributes:
        name: It identifies the policy.
        match: The pattern of the addresses.
        priority: The highest that says an argument counts.
        arguments: Of queues, as `queue_arguments` tells of.
    """

    name: str
    match: str
    priority: int
    arguments: Mapping[str, Any]

    def fits(self, queue: str) -> bool:
        """True if a queue, by its name, is on an address that fits; a link's own is no such.

        Nor is the queue that the policy names for dead letters: they would expire there, or be
        dropped, by the very arguments that sent them there.
        """
        return not is_reserved(queue) and queue != self.target and self._matches(queue)

    @property
    def target(self) -> str | None:
        """The dead-letter queue that it names; None: none."""
        return target_of(self.arguments)

    @property
    def left_out(self) -> str | None:
        """The queue that would fit if the policy did not name it for dead letters; None: none."""
        is_fitting = self.target is not None and self._matches(self.target)
        return self.target if is_fitting else None

    def _matches(self, queue: str) -> bool:
        return self._pattern.fits(parts_of(queue)[0].split("."))

    @property
    def _pattern(self) -> WordPattern:
        return WordPattern(words_of(self.match))

    @property
    def detail(self) -> dict[str, Any]:
        """The object that is kept of it."""
        kept = {"match": self.match, "priority": self.priority}
        return {**kept, "arguments": dict(self.arguments)}


def policies_of(configured: Mapping[tuple[str, str], Any]) -> list[Policy]:
    """All policies of a broker's configuration, those that count most first.

    Args:
        configured: Objects by category and key, as JSON or what it says.
    """
    own = ((key, detail) for (of, key), detail in configured.items() if of == CATEGORY)
    return in_order(policy_of(key, detail) for key, detail in own)


def policy_of(name: str, detail: Any) -> Policy:
    """Read a policy from the object that is kept of it.

    Raises:
        InvalidRequest: It is none; whoever may configure the store may send anything.
    """
    definition = json.loads(detail) if isinstance(detail, str) else detail
    fields = (definition.get("match"), definition.get("priority"), definition.get("arguments"))
    if tuple(map(type, fields)) != (str, int, dict):
        message = f"policy {shown(name)}: {detail!r:.100}: it has match, priority and arguments"
        raise InvalidRequest(message)
    return Policy(name, *fields)


def in_order(policies: Iterable[Policy]) -> list[Policy]:
    """Sort policies, those that count most first."""
    return sorted(policies, key=lambda policy: (-policy.priority, policy.name))


def with_change(policies: Sequence[Policy], name: str, policy: Policy | None) -> list[Policy]:
    """All policies after the one of a name was set, or deleted: None."""
    others = (other for other in policies if other.name != name)
    return in_order(others if policy is None else (*others, policy))


def with_policies(
    queue: str, arguments: Mapping[str, Any], policies: Sequence[Policy]
) -> dict[str, Any]:
    """The arguments of a queue, with what policies say of it.

    Args:
        queue: Name of the queue.
        arguments: Its own; what policies said of it before is left out.
        policies: All there are, those that count most first.
    """
    own = {name: value for name, value in arguments.items() if name != POLICY}
    given: dict[str, dict[str, Any]] = {}
    for policy in policies:
        if policy.fits(queue):
            for name, value in policy.arguments.items():
                given.setdefault(name, {"value": value, "from": policy.name})
    return {**own, POLICY: given} if given else own
