"""Policies give queues by pattern what these do not say themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkstore.core.durability import TerminusDurability
from sparkstore.core.fold import QueueState, State, apply
from sparkstore.core.policies import CATEGORY, Policy, policies_of, with_policies
from sparkstore.core.queue_arguments import POLICY, own_arguments_of, sources, terms_of
from sparkstore.core.records import Kind
from sparkstore.core.state_machine.call_values import Queue
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.errors import InvalidRequest
from sparkstore.operations.policy_orders import decide_set, faults_of
from sparkstore.operations.root_at_rest import StateFacts


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("orders.#", ["orders", "orders.eu", "orders.eu.new", "orders.eu::mine"], ["order", "x"]),
        ("orders.*", ["orders.eu"], ["orders", "orders.eu.new"]),
        ("#", ["orders", "a.b.c"], []),
        ("*.new", ["orders.new"], ["new", "orders.eu.new"]),
        ("#.new", ["new", "orders.eu.new"], ["newer"]),
        ("a.#.#.z", ["a.z", "a.b.c.z"], ["a", "a.b"]),
        ("orders", ["orders"], ["orders.eu", "ordersx"]),
    ],
)
def test_a_pattern_fits_words_of_an_address(
    pattern: str, fitting: list[str], others: list[str]
) -> None:
    policy = Policy("p", pattern, 0, {})
    assert [each for each in fitting + others if policy.fits(each)] == fitting


def test_many_hashes_take_no_time() -> None:
    assert not Policy("p", "#." * 100 + "z", 0, {}).fits(".".join("a" * 200))


def test_a_queue_wins_then_the_priority_then_the_name() -> None:
    configured = {
        (CATEGORY, name): json.dumps({"match": "q", "priority": priority, "arguments": arguments})
        for name, priority, arguments in (
            ("low", 1, {"max_depth": 1, "max_bytes": 1, "message_ttl_ms": 1}),
            ("b", 5, {"max_bytes": 3, "message_ttl_ms": 3}),
            ("a", 5, {"max_bytes": 2}),
        )
    }
    told = with_policies("q", {"message_ttl_ms": 9}, policies_of(configured))
    assert {name: (each["value"], each["from"]) for name, each in sources(told).items()} == {
        "max_depth": (1, "policy low"),
        "max_bytes": (2, "policy a"),
        "message_ttl_ms": (9, "queue"),
    }
    assert with_policies("other", told, policies_of(configured)) == {"message_ttl_ms": 9}


def test_what_an_older_version_said_of_the_queue_of_dead_letters_is_found_and_mended() -> None:
    """It gave that queue the policy, too: setting the same policy again takes it away."""
    policy = Policy("all", "#", 0, {"message_ttl_ms": 1, "dead_letter_queue": "dead"})
    told = {name: {"value": value, "from": "all"} for name, value in policy.arguments.items()}
    state = State()
    detail = json.dumps({"arguments": {POLICY: told}, "durability": 2})
    state.queues = {name: QueueState(detail, 1) for name in ("q", "dead")}
    state.configured = {(CATEGORY, "all"): json.dumps(policy.detail, sort_keys=True)}
    (fault,) = faults_of(StateFacts(state))
    assert fault.startswith("queue 'dead' has what policy 'all' says")
    again = decide_set(policy, StateFacts(state))
    assert (again.is_change, again.answer["altered"]) == (True, 1)
    machine = StoreStateMachine(state, TerminusDurability.UNSETTLED_STATE, lambda: 0)
    machine.apply(machine.configure(CATEGORY, "all", policy.detail), 2)
    assert faults_of(StateFacts(state)) == []
    assert own_arguments_of(state.queues["dead"].detail) == {}
    assert not decide_set(policy, StateFacts(state)).is_change
    assert machine.configure(CATEGORY, "all", policy.detail) == []


class Store:
    """A state machine, and the fold of its records."""

    def __init__(self) -> None:
        self.state, self.position = State(), 0
        self.machine = StoreStateMachine(State(), TerminusDurability.UNSETTLED_STATE, lambda: 0)

    def do(self, steps: list[Any]) -> list[Kind]:
        self.machine.apply(steps, self.position + 1)
        for step in steps:
            self.position += 1
            apply(self.state, self.position, step.record)
        return [step.record.kind for step in steps]

    def terms(self, queue: str) -> tuple[int | None, int | None]:
        """As the living store has them; what a restart would read is the same."""
        again = StoreStateMachine(self.state, TerminusDurability.UNSETTLED_STATE, lambda: 0)
        assert again.terms == self.machine.terms
        arguments = self.machine.terms[queue].arguments
        return arguments.max_depth, arguments.max_bytes


def test_a_policy_and_the_queues_that_it_alters_are_one_call() -> None:
    it = Store()
    it.do(it.machine.create(Queue("a.1", arguments={"max_bytes": 7})))
    it.do(it.machine.create(Queue("b")))
    policy = {"match": "a.#", "priority": 0, "arguments": {"max_depth": 5, "max_bytes": 6}}
    assert it.do(it.machine.configure(CATEGORY, "p", policy)) == [Kind.CONFIGURED, Kind.ALTERED]
    assert it.do(it.machine.configure(CATEGORY, "p", policy)) == []
    assert [it.terms(each) for each in ("a.1", "b")] == [(5, 7), (None, None)]
    it.do(it.machine.create(Queue("a.2")))
    assert it.terms("a.2") == (5, 6)
    assert it.do(it.machine.create(Queue("a.2"))) == []  # as a broker does at its start
    it.do(it.machine.alter(Queue("a.2", arguments={"max_depth": 1})))
    assert it.terms("a.2") == (1, 6)
    it.do(it.machine.alter(Queue("a.2")))
    assert it.terms("a.2") == (5, 6)
    kinds = it.do(it.machine.configure(CATEGORY, "p", None))
    assert kinds == [Kind.UNCONFIGURED, Kind.ALTERED, Kind.ALTERED]
    assert [it.terms(each) for each in ("a.1", "a.2")] == [(None, 7), (None, None)]


@pytest.mark.parametrize(
    "detail",
    [
        {},
        {"match": 7, "priority": 0, "arguments": {}},
        {"match": "#", "priority": True, "arguments": {}},
        {"match": "#", "priority": 0, "arguments": []},
    ],
    ids=str,
)
def test_what_is_no_policy_is_refused_by_the_store(detail: dict[str, Any]) -> None:
    """A member of the service may configure anything, but for this."""
    it = Store()
    it.do(it.machine.create(Queue("q")))
    with pytest.raises(InvalidRequest):
        it.machine.configure(CATEGORY, "p", detail)
    assert it.machine.policies == []


def test_nobody_but_the_store_says_what_a_policy_says() -> None:
    it = Store()
    lie = {"policy": {"max_depth": {"value": 1, "from": "me"}}, "max_bytes": 3}
    it.do(it.machine.create(Queue("q", arguments=lie)))
    assert it.terms("q") == (None, 3)
    assert own_arguments_of(it.state.queues["q"].detail) == {"max_bytes": 3}
    odd = '{"arguments": {"policy": {"max_depth": 1, "max_bytes": {}}}, "durability": 2}'
    assert terms_of(odd).arguments.max_depth is None
