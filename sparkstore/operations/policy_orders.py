"""Decide what an administrator asks of policies (`core.policies`): to set one, or delete it. Pure.

A change that a queue cannot take now, as message groups while it has consumers, is refused as a
whole, as `queue_alteration` refuses it of one queue. What the change would do at once is told: a
message that failed too often for its queue leaves it (`over_delivered`); lifetimes, delays and
limits hold for what comes from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sparkstore.core.entries import Entry
from sparkstore.core.policies import Policy, with_change
from sparkstore.core.queue_arguments import (
    arguments_of,
    check_arguments,
    own_arguments_of,
    sources,
    terms_of,
)
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.definitions import (
    as_json,
    as_policies_say,
    detail_of,
    queue_of,
)
from sparkstore.errors import InvalidRequest
from sparkstore.operations.order_checks import (
    WiringFacts,
    check_given,
    check_known,
    warnings_of,
)
from sparkstore.operations.queue_alteration import QueueUsage, check_alteration

MOST_PRIORITY = 1_000_000
_MOST_CHARACTERS, _MOST_WORDS = 1_000, 256
_SHOWN = 20


class PolicyFacts(WiringFacts, Protocol):
    """The facts that an order about policies is decided by."""

    @property
    def queues(self) -> Collection[str]:
        """Names of all queues."""

    def standing(self, queue: str) -> QueueUsage:
        """Return how much a queue holds, and how many consumers use it."""

    def policies(self) -> Sequence[Policy]:
        """Return all policies, those that count most first."""

    def over_delivered(self, queue: str, limit: int) -> int:
        """Count waiting messages of a queue with more failed deliveries than a limit."""


class PolicyDecision(NamedTuple):
    """The decision of an order about a policy: its fields as `administration.OrderDecision`."""

    answer: dict[str, Any]
    is_change: bool
    detail: str


def decide_set(policy: Policy, facts: PolicyFacts) -> PolicyDecision:
    """Decide to create a policy, or to replace the one of its name.

    Raises:
        InvalidRequest: It is none, or a queue cannot take it now.
    """
    check_policy(policy)
    check_given("policy", policy.name, policy.arguments, facts)
    answer = {"policy": policy.name, **policy.detail}
    answer |= _effects(policy, with_change(facts.policies(), policy.name, policy), facts)
    if policy.left_out is not None:
        answer["left_out"] = policy.left_out
    is_change = policy not in facts.policies() or answer["altered"] > 0
    return PolicyDecision(answer, is_change, as_json(policy.detail))


def decide_delete(name: str, facts: PolicyFacts) -> PolicyDecision:
    """Decide to delete a policy.

    Raises:
        InvalidRequest: There is none of this name, or a queue cannot do without it now.
    """
    standing = {policy.name: policy for policy in facts.policies()}
    if name not in standing:
        known = ", ".join(map(shown, [*standing][:_SHOWN])) or "none"
        message = f"unknown policy {shown(name)}: there is {known} (sparkstore policy list)"
        raise InvalidRequest(message)
    effects = _effects(standing[name], with_change(facts.policies(), name, None), facts)
    return PolicyDecision({"policy": name, **effects}, is_change=True, detail="")


def _effects(policy: Policy, after: Sequence[Policy], facts: PolicyFacts) -> dict[str, Any]:
    """Tell what a change does: how many queues fit, what changes, which say otherwise, what leaves.

    Of queues that change, or say otherwise, the first are named.
    """
    fitting, changed, leaving = 0, 0, 0
    overridden: dict[str, list[str]] = {}
    changes: dict[str, dict[str, Any]] = {}
    definitions: dict[str, str] = {}
    for queue in facts.queues:
        is_fitting = policy.fits(queue)
        if not is_fitting and queue != policy.left_out:  # an older version did not leave it out
            continue
        fitting += is_fitting
        detail = facts.detail(queue) or "{}"
        old = queue_of(queue, detail)
        new = as_policies_say(old, after)
        own = sorted(policy.arguments.keys() & old.arguments.keys())
        if own and len(overridden) < _SHOWN:
            overridden[queue] = own
        if new == old:
            continue
        changed += 1
        change = _changes(sources(old.arguments), sources(new.arguments))
        if change and len(changes) < _SHOWN:
            changes[queue] = change
        wanted = definitions[queue] = detail_of(new)
        check_alteration(queue, detail, wanted, facts.standing(queue))
        limit = terms_of(wanted).arguments.max_delivery_count
        if limit is not None and limit != terms_of(detail).arguments.max_delivery_count:
            leaving += facts.over_delivered(queue, limit)
    effects: dict[str, Any] = {"queues": fitting, "altered": changed, "over_delivered": leaving}
    effects |= warnings_of(definitions, facts)
    named = {"changes": changes, "overridden": overridden}
    return {**effects, **{name: queues for name, queues in named.items() if queues}}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a queue that would count from now on; None: it has one no more."""
    was = {name: source["value"] for name, source in old.items()}
    will = {name: source["value"] for name, source in new.items()}
    return {name: will.get(name) for name in {**was, **will} if was.get(name) != will.get(name)}


def faults_of(facts: PolicyFacts) -> list[str]:
    """Tell what is wrong with queues as they are defined: what no order would say of them now."""
    definitions = {name: facts.detail(name) or "{}" for name in facts.queues}
    faults = []
    for name, detail in definitions.items():
        try:
            check_given("queue", name, own_arguments_of(detail), facts)
        except InvalidRequest as reason:
            faults.append(str(reason))
    for policy in facts.policies():
        if _is_given(definitions.get(policy.left_out or "", "{}"), policy.name):
            text = f"queue {shown(policy.left_out or '')} has what policy {shown(policy.name)} says"
            faults.append(f"{text}, which names it for dead letters: set the policy again")
    return faults + warnings_of(definitions, facts).get("warnings", [])


def _is_given(detail: str, policy: str) -> bool:
    arguments = sources(arguments_of(detail)).values()
    return any(argument["from"] == f"policy {policy}" for argument in arguments)


def count_over_delivered(entries: Iterable[tuple[int, Entry]], limit: int) -> int:
    """Count entries that wait with more failed deliveries than a limit."""
    return sum(entry.acquired_by is None and entry.delivery_count > limit for _, entry in entries)


def check_policy(policy: Policy) -> None:
    """Refuse what is no policy, whatever queues there are. Raises InvalidRequest."""
    name = shown(policy.name)
    if not policy.name or len(policy.name) > _MOST_CHARACTERS:
        message = f"a policy needs a name of 1 to {_MOST_CHARACTERS} characters"
        raise InvalidRequest(message)
    words = policy.match.split(".")
    is_wild = any(word not in {"#", "*"} and {"#", "*"} & {*word} for word in words)
    if not policy.match or len(policy.match) > _MOST_CHARACTERS or len(words) > _MOST_WORDS:
        message = f"policy {name}: its pattern has 1 to {_MOST_CHARACTERS} characters and at most"
        raise InvalidRequest(f"{message} {_MOST_WORDS} words")
    if is_wild:
        message = f"policy {name}: pattern {shown(policy.match)}: * and # stand for whole words,"
        raise InvalidRequest(f"{message} as in orders.*.new or orders.#")
    if not -MOST_PRIORITY <= policy.priority <= MOST_PRIORITY:
        message = f"policy {name}: priority {policy.priority}: say an integer from"
        raise InvalidRequest(f"{message} -{MOST_PRIORITY} to {MOST_PRIORITY}")
    if not policy.arguments:
        raise InvalidRequest(f"policy {name} says nothing: give it an argument of queues")
    check_known("policy", policy.name, policy.arguments)
    check_arguments(policy.name, policy.arguments, "policy")
