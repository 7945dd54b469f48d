"""What an administrator's orders promise: to a running broker, and to a root at rest.

The commands at the end go three roads: to a running broker by its control socket and by its HTTP
port, and to a root at rest. What they print and do is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_shim.broker.orders import bulk_turns
from broker_shim.store.branch_store import Xid
from sparkstore import queue_columns
from sparkstore.cli.command_line import main
from sparkstore.control import offline
from sparkstore.core.annotations import DELIVERY_TIME, MOST_TIME_MS, Death, with_death
from sparkstore.core.queue_arguments import arguments_of, sources
from sparkstore.errors import InvalidRequest
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Answer
from tests.support.stores.controls import Place

FOX = "prices.eu::🦊"


@pytest.fixture(params=["served", "at rest"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    it = Place(tmp_path / "root", is_served=request.param == "served")
    it.create("q", max_delivery_count=7)
    it.create("dead")
    it.create(FOX)
    yield it
    it.close()


def create(queue: str, **arguments: Any) -> Order:
    return Order(AdminAction.CREATE_QUEUE, queue, arguments=arguments)


def alter(queue: str, **arguments: Any) -> Order:
    return Order(AdminAction.ALTER_QUEUE, queue, arguments=arguments)


def delete(queue: str, *, force: bool = False) -> Order:
    return Order(AdminAction.DELETE_QUEUE, queue, force=force)


def exchange(name: str, kind: str = "topic", **arguments: Any) -> Order:
    return Order(AdminAction.CREATE_EXCHANGE, exchange=name, type=kind, arguments=arguments)


def bound(queue: str, headers: dict[str, Any], name: str = "others") -> Order:
    return Order(AdminAction.ADD_BINDING, queue, name, "", arguments=headers)


def binding(act: AdminAction, queue: str, key: str = "#", name: str = "news") -> Order:
    return Order(act, queue, name, key)


def policy(name: str, match: str, priority: int = 0, **arguments: Any) -> Order:
    act = AdminAction.SET_POLICY
    return Order(act, key=name, match=match, priority=priority, arguments=arguments)


def definitions(place: Place) -> dict[str, Any]:
    return {name: arguments_of(detail) for name, detail in details(place).items()}


def details(place: Place) -> dict[str, str]:
    return {name: queue.detail for name, queue in place.after().state.queues.items()}


def test_a_queue_is_created_once_with_what_it_was_said_to_have(place: Place) -> None:
    wanted = create("orders::late", message_ttl_ms=5, dead_letter_queue="dead", exclusive=None)
    told = place.control.order(wanted)
    arguments = {"message_ttl_ms": 5, "dead_letter_queue": "dead"}
    assert told == {
        "act": "create-queue",
        "queue": "orders::late",
        "arguments": arguments,
        "changed": True,
    }
    assert place.control.order(wanted) == {**told, "changed": False}
    assert definitions(place)["orders::late"] == arguments


def test_a_policy_alters_the_queues_that_fit_and_tells_what_it_does(place: Place) -> None:
    place.put("q")
    place.fail("q", 1, 2)
    told = place.control.order(policy("all", "#", max_delivery_count=1, max_depth=9))
    assert (told["policy"], told["changed"], told["overridden"]) == (
        "all",
        True,
        {"q": ["max_delivery_count"]},
    )
    assert (told["altered"], told["over_delivered"]) == (told["queues"], 0)
    assert told["changes"]["q"] == {"max_depth": 9}
    assert not place.control.order(policy("all", "#", max_delivery_count=1, max_depth=9))["changed"]
    assert place.control.order(create("later"))["arguments"] == {}
    assert place.control.order(create("later"))["changed"] is False
    told = place.control.order(alter("q", max_delivery_count=None))
    assert told["arguments"] == {}
    place.control.order(policy("prices", "prices.*", priority=1, max_depth=1))
    place.control.order(policy("gone", "#", 2, max_depth=7))
    deleted = Order(AdminAction.DELETE_POLICY, key="gone")
    assert place.control.order(deleted)["changes"]["q"] == {"max_depth": 9}
    with pytest.raises(InvalidRequest, match="unknown policy 'gone': there is 'prices', 'all'"):
        place.control.order(deleted)
    found = {
        name: {each: value["value"] for each, value in sources(arguments_of(q.detail)).items()}
        for name, q in place.after().state.queues.items()
    }
    assert found["later"] == {"max_delivery_count": 1, "max_depth": 9}
    assert found["q"] == found["later"]
    assert found[FOX]["max_depth"] == 1


def test_a_policy_tells_how_many_messages_leave_their_queue_at_once(place: Place) -> None:
    """Those that failed too often for it, of queues that do not say otherwise themselves."""
    place.put("dead", count=3)
    place.put("q")
    for message_id, times in ((1, 3), (2, 2), (3, 1), (4, 3)):
        place.fail("q" if message_id == 4 else "dead", message_id, times)
    told = place.control.order(policy("strict", "#", max_delivery_count=1))
    assert (told["over_delivered"], told["overridden"]) == (2, {"q": ["max_delivery_count"]})


def test_a_policy_leaves_out_the_queue_that_it_names_for_dead_letters(place: Place) -> None:
    """Else what died would die there too, by the time to live of the same policy."""
    place.control.order(policy("all", "#", message_ttl_ms=1, dead_letter_queue="dead"))
    told = place.control.order(policy("all", "#", message_ttl_ms=2, dead_letter_queue="dead"))
    assert (told["left_out"], told["queues"], "warnings" in told) == ("dead", 2, False)
    told = place.control.order(policy("elsewhere", "a.#", dead_letter_queue="dead"))
    assert "left_out" not in told
    told = place.control.order(policy("dead", "#", dead_letter_queue="dead"))
    assert told["left_out"] == "dead", "a policy may have the name of a queue"
    found = {name: sources(arguments_of(detail)) for name, detail in details(place).items()}
    assert found["dead"] == {}
    assert found["q"]["message_ttl_ms"]["value"] == 2


CYCLES: list[list[Order]] = [
    [
        create("a", message_ttl_ms=1, dead_letter_queue="b"),
        create("b", message_ttl_ms=1, dead_letter_queue="a"),
    ],
    [
        create("a", message_ttl_ms=1, dead_letter_queue="dead"),
        alter("dead", message_ttl_ms=1, dead_letter_queue="a"),
    ],
    [
        create("a", dead_letter_queue="dead"),
        alter("dead", dead_letter_queue="a"),
        policy("all", "#", message_ttl_ms=1),
    ],
    [
        policy("all", "a", message_ttl_ms=1, dead_letter_queue="dead"),
        alter("dead", message_ttl_ms=1, dead_letter_queue="a"),
        create("a"),
    ],
    [
        create("a", message_ttl_ms=1, dead_letter_queue="b"),
        create("b", message_ttl_ms=1, dead_letter_queue="c"),
        create("c", message_ttl_ms=1, dead_letter_queue="b"),
        alter("a", message_ttl_ms=2),
    ],
]


@pytest.mark.parametrize("orders", CYCLES)
def test_who_makes_dead_letters_go_round_is_warned(place: Place, orders: list[Order]) -> None:
    for order in orders[:-1]:
        told = place.control.order(order)
        assert "warnings" not in told or order is CYCLES[-1][2]
    (warning,) = place.control.order(orders[-1])["warnings"]
    assert "dead letters go round from" in warning


def test_a_queue_for_retries_is_no_cycle_to_be_warned_of(place: Place) -> None:
    """It sends back what expires; the other one has no time to live, but consumers."""
    place.control.order(create("work", dead_letter_queue="retry"))
    told = place.control.order(create("retry", message_ttl_ms=9, dead_letter_queue="work"))
    assert "warnings" not in told


REFUSED = [
    (policy("p", "#", alternate_exchange="absent"), "policy 'p': its alternate_exchange 'absent'"),
    (policy("p", "#"), "says nothing: give it an argument"),
    (policy("", "#", max_depth=1), "a policy needs a name"),
    (policy("p", "", max_depth=1), "its pattern has 1 to"),
    (policy("p", "orders*", max_depth=1), "stand for whole words"),
    (policy("p", "#", max_dpth=1), "did you mean 'max_depth'"),
    (policy("p", "#", max_depth="9"), "policy 'p': max_depth is '9': say an integer"),
    (policy("p", "#", policy={}), "unknown argument"),
    (policy("p", "#", when_full="dead_letter"), "name a dead_letter_queue"),
    (policy("p", "#", 1 << 40, max_depth=1), "priority 1099511627776: say an integer from"),
    (Order(AdminAction.DELETE_POLICY, key="absent"), "unknown policy 'absent': there is none"),
    (create(""), "at least one character"),
    (create("q"), "is there as .*see sparkstore queue alter"),
    (create("a::b::c"), "more than one"),
    (create("half \ud800"), "not valid Unicode"),
    (create("x" * 10_001), "at most 10000 characters"),
    (create("." * 256), "256 words"),
    (create("temporary"), "the broker's"),
    (create("a::temporary-1"), "the broker's"),
    (create("amq.topic"), "an exchange's name"),
    (create("news::q"), "an exchange's name"),
    (create("new", mesage_ttl_ms=5), "did you mean 'message_ttl_ms'"),
    (create("new", message_ttl_ms="5"), "say an integer"),
    (create("new", dead_letter_queue="new"), "name of another queue"),
    (alter("absent", exclusive=True), "unknown queue 'absent'"),
    (alter("q"), "say what to alter"),
    (alter("q", exclsive=True), "did you mean 'exclusive'"),
    (alter("q", max_delivery_count=-1), "say an integer"),
    (delete("absent"), "unknown queue 'absent'"),
    (delete("dead"), "where the dead letters of 'lettered' go: --force"),
    (exchange("news", "fanout"), "is there as topic: delete it"),
    (exchange("new", "tree"), "say one of direct"),
    (exchange(""), "at least one character"),
    (exchange("amq.new"), "the broker's"),
    (exchange("a/b"), "no /"),
    (exchange("new", alternat_exchange="news"), "did you mean 'alternate_exchange'"),
    (exchange("new", alternate_exchange=7), "say another exchange's name"),
    (exchange("new", alternate_exchange="new"), "say another exchange's name"),
    (exchange("new", alternate_exchange="absent"), "'absent' is not there: create it first"),
    (exchange("news", alternate_exchange="news2"), "is there with alternate_exchange none, not"),
    (create("new", alternate_exchange="absent"), "'absent' is not there: create it first"),
    (alter("q", alternate_exchange="absent"), "'absent' is not there: create it first"),
    (alter("q", alternate_exchange=7), "say the name of an exchange"),
    (alter("q", auto_delete="yes"), "auto_delete is 'yes': say true or false"),
    (create("new", auto_delte=True), "did you mean 'auto_delete'"),
    (
        Order(AdminAction.DELETE_EXCHANGE, exchange="others", force=True),
        "is the alternate of exchange 'main', queue 'lettered': delete or alter that",
    ),
    (
        Order(AdminAction.DELETE_EXCHANGE, exchange="news", force=True, if_unused=True),
        "has 1 bindings, so it is in use",
    ),
    (bound("q", {"x-match": "some"}), 'say "all" or "any"'),
    (bound("q", {"x-mach": "all"}), "did you mean 'x-match'"),
    (bound("q", {"x-match": "any"}), "no message would fit"),
    (bound("q", {"a": [1]}), "header 'a' is .*: say a text, a number"),
    (bound("q", {"a": float("nan")}), "header 'a' is nan: say a text, a number|not JSON"),
    (bound("q", {"a": 1}, "news"), "only bindings to one of type headers have arguments"),
    (exchange("q"), "a queue has this name"),
    (Order(AdminAction.DELETE_EXCHANGE, exchange="absent"), "unknown exchange"),
    (
        Order(AdminAction.DELETE_EXCHANGE, exchange="amq.topic", force=True),
        "unknown|every broker's",
    ),
    (Order(AdminAction.DELETE_EXCHANGE, exchange="news"), "has 1 bindings: --force"),
    (binding(AdminAction.ADD_BINDING, "q", name="absent"), "unknown exchange"),
    (binding(AdminAction.ADD_BINDING, "absent"), "unknown queue"),
    (binding(AdminAction.REMOVE_BINDING, "q", "b.#"), "its keys are 'a.#'"),
    (binding(AdminAction.REMOVE_BINDING, "dead"), "is not bound to 'news'"),
]


def test_what_cannot_be_is_refused_and_changes_nothing(place: Place) -> None:
    place.create("lettered", dead_letter_queue="dead")
    place.control.order(exchange("news"))
    place.control.order(exchange("others", "headers"))
    place.control.order(exchange("main", alternate_exchange="others"))
    place.control.order(alter("lettered", alternate_exchange="others"))
    place.control.order(binding(AdminAction.ADD_BINDING, "q", "a.#"))
    for order, why in REFUSED:
        with pytest.raises(InvalidRequest, match=why):
            place.control.order(order)
    state = place.after().state
    assert {*state.queues} == {"q", "dead", FOX, "lettered"}
    assert arguments_of(state.queues["q"].detail) == {"max_delivery_count": 7}
    assert [tuple(key) for key in state.bindings] == [("news", "q", "a.#")]
    assert "new" not in state.exchanges


def test_an_alteration_changes_what_it_names_and_keeps_the_rest_and_the_messages(
    place: Place,
) -> None:
    ids = place.put("q", count=3)
    told = place.control.order(alter("q", dead_letter_queue="dead", message_ttl_ms=60_000))
    assert told["arguments"] == {
        "max_delivery_count": 7,
        "dead_letter_queue": "dead",
        "message_ttl_ms": 60_000,
    }
    told = place.control.order(alter("q", max_delivery_count=None))
    assert told["changed"]
    assert not place.control.order(alter("q", max_delivery_count=None))["changed"]
    after = place.after()
    assert arguments_of(after.state.queues["q"].detail) == {
        "dead_letter_queue": "dead",
        "message_ttl_ms": 60_000,
    }
    assert after.ids("q") == ids


def test_the_key_of_last_values_changes_only_while_the_queue_is_empty(place: Place) -> None:
    place.put("q")
    with pytest.raises(InvalidRequest, match=r"has 1 messages.*sparkstore queue purge"):
        place.control.order(alter("q", last_value_key="color"))
    assert place.control.purge("q", lambda _: None) == Answer(done=1)
    assert place.control.order(alter("q", last_value_key="color"))["changed"]
    assert definitions(place)["q"] == {"max_delivery_count": 7, "last_value_key": "color"}


def test_a_queue_with_messages_is_deleted_by_force_alone_with_its_bindings(place: Place) -> None:
    ids = place.put(FOX, "dead", count=2)
    place.control.order(exchange("news"))
    place.control.order(binding(AdminAction.ADD_BINDING, "🦊"))
    with pytest.raises(InvalidRequest, match="has 2 messages: --force deletes it"):
        place.control.order(delete("🦊"))
    told = place.control.order(delete("🦊", force=True))
    assert told == {
        "act": "delete-queue",
        "queue": FOX,
        "messages_lost": 2,
        "consumers_ended": 0,
        "bindings_removed": 1,
        "changed": True,
    }
    after = place.after()
    assert {*after.state.queues} == {"q", "dead"}
    assert not after.state.bindings
    assert after.ids("dead") == ids, "they are on another queue, too"


def test_a_deleted_queue_is_made_anew_without_what_it_had(place: Place) -> None:
    place.put("q")
    place.control.order(delete("q", force=True))
    place.control.order(create("q"))
    after = place.after()
    assert (after.ids("q"), arguments_of(after.state.queues["q"].detail)) == ([], {})


def test_an_exchange_and_its_bindings_come_and_go(place: Place) -> None:
    assert place.control.order(exchange("news"))["changed"]
    assert not place.control.order(exchange("news"))["changed"]
    for key in ("a.#", "", "a.#"):
        place.control.order(binding(AdminAction.ADD_BINDING, "🦊", key))
    assert place.control.order(binding(AdminAction.REMOVE_BINDING, FOX, ""))["changed"]
    told = place.control.order(Order(AdminAction.DELETE_EXCHANGE, exchange="news", force=True))
    assert told["bindings_removed"] == 1
    after = place.after().state
    assert "news" not in after.exchanges
    assert not after.bindings


def test_a_purge_takes_what_is_there_but_what_is_held_in_steps(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in (bulk_turns, offline):
        monkeypatch.setattr(part, "RUN_IDS", 300)
    ids = place.put("q", count=1001)
    place.hold("q", ids[500])
    told: list[Answer] = []
    assert place.control.purge("q", told.append) == Answer(done=1000, left=1)
    assert [answer.done for answer in told] == sorted({answer.done for answer in told})
    assert len(told) >= 2
    assert place.control.purge("q", told.append) == Answer(left=1)
    assert place.after().ids("q") == [ids[500]]


def test_a_purge_of_a_queue_that_is_not_there_is_refused(place: Place) -> None:
    with pytest.raises(InvalidRequest, match="unknown queue 'absent'"):
        place.control.purge("absent", lambda _: None)


def test_what_is_made_is_defined_alike_whoever_makes_it(tmp_path: Path) -> None:
    made = []
    for is_served in (True, False):
        place = Place(tmp_path / str(is_served), is_served=is_served)
        place.create("q")
        for order in (create("new", exclusive=True), exchange("news"), alter("q", exclusive=True)):
            place.control.order(order)
        place.control.order(binding(AdminAction.ADD_BINDING, "new"))
        state = place.after().state
        queues = {name: queue.detail for name, queue in state.queues.items()}
        made.append((queues, state.exchanges["news"], state.bindings))
    assert made[0] == made[1]


def test_what_a_binding_and_an_exchange_were_said_to_be_is_kept(place: Place) -> None:
    wanted = {"x-match": "any", "land": "eu", "year": 2026, "urgent": True, "key": None}
    place.control.order(exchange("others", "headers"))
    told = place.control.order(exchange("main", alternate_exchange="others"))
    assert told["alternate_exchange"] == "others"
    assert not place.control.order(exchange("main", alternate_exchange="others"))["changed"]
    assert place.control.order(bound("q", wanted))["changed"]
    assert not place.control.order(bound("q", wanted))["changed"]
    with pytest.raises(InvalidRequest, match="remove that first, or say another key"):
        place.control.order(bound("q", {"land": "us"}))
    state = place.after().state
    assert arguments_of(state.exchanges["main"]) == {"alternate_exchange": "others"}
    [detail] = state.bindings.values()
    assert arguments_of(detail) == wanted


def test_an_exchange_cannot_be_made_the_end_of_its_own_way(place: Place) -> None:
    place.control.order(exchange("c"))
    place.control.order(exchange("b", alternate_exchange="c"))
    place.control.order(exchange("a", alternate_exchange="b"))
    with pytest.raises(InvalidRequest, match="is the alternate of exchange 'b'"):
        place.control.order(Order(AdminAction.DELETE_EXCHANGE, exchange="c", force=True))


def test_what_is_on_a_deleted_queue_goes_by_its_alternate_exchange_if_a_broker_runs(
    place: Place,
) -> None:
    place.put("q", count=3)
    place.control.order(exchange("others", "fanout"))
    place.control.order(bound("dead", {}, "others"))
    place.control.order(alter("q", alternate_exchange="others"))
    if not place.is_served:
        with pytest.raises(InvalidRequest, match="start one, or purge 'q' first"):
            place.control.order(delete("q", force=True))
        assert len(place.after().ids("q")) == 3
        return
    told = place.control.order(delete("q", force=True))
    assert (told["messages_rerouted"], told["alternate_exchange"]) == (3, "others")
    after = place.after()
    assert len(after.ids("dead")) == 3
    assert "q" not in after.state.queues


class Road:
    """A command's way: to a running broker by its socket or its URL, or to a root at rest."""

    def __init__(self, place: Place, captured: pytest.CaptureFixture[str], url: str) -> None:
        self.place, self._captured, self._url = place, captured, url

    def run(self, command: str, *more: str, code: int = 0) -> list[dict[str, Any]]:
        """What a command prints for machines."""
        assert main([*self._words(command, more), "--json"]) == code, self._captured.readouterr()
        return [json.loads(line) for line in self._captured.readouterr().out.splitlines()]

    def refused(self, command: str, *more: str) -> str:
        """What a command says that is refused."""
        assert main(self._words(command, more)) == 2
        told = self._captured.readouterr()
        assert told.out == ""
        return told.err

    def audited(self) -> list[str]:
        if self.place.served is None:
            lines = map(json.loads, (self.place.path / "audit.log").read_text().splitlines())
            return [line["act"] for line in lines if "error" not in line]
        told = [details for _, details in self.place.served.audited]
        return [details["act"] for details in told if details.get("error") is None]

    def _words(self, command: str, more: tuple[str, ...]) -> list[str]:
        if self._url:
            return [*command.split(), *more, "--url", self._url]
        if self.place.is_served:
            self.place.control.flush()  # a list is read in the tables
        return [*command.split(), str(self.place.path), *more]


XID, XID_TEXT = Xid(1, b"order 17", b"q"), "1:6f72646572203137:71"


@pytest.fixture(params=["control socket", "http", "at rest"])
def road(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Road]:
    """A root with a dead letter of `q` on `dead`, and a branch in doubt that takes from `q`."""
    place = Place(tmp_path / "root", is_served=request.param != "at rest")
    for name in ("q", "dead", "other", "later"):
        place.create(name)
    place.put("dead", annotations=with_death(None, Death("q", "rejected", 1, 2)))
    place.put("q", "other")
    place.put("later", annotations={DELIVERY_TIME: ("long", str(MOST_TIME_MS))})
    place.prepare(XID, "q", place.put("q")[0])
    if not place.is_served:
        place.close()
        yield Road(place, capsys, "")
        return
    assert place.control
    assert place.served is not None
    yield Road(place, capsys, place.served.serve_http() if request.param == "http" else "")
    place.close()


def test_wiring_is_made_listed_and_taken_away_by_either_road(road: Road) -> None:
    made = {"act": "create-exchange", "exchange": "news", "type": "topic", "changed": True}
    asked = ("exchange create", "news", "--type", "topic")
    assert road.run(*asked, "--dry-run") == [{"dry_run": True, **made}]
    assert road.run("exchange create", "news", "--type", "topic") == [made]
    bound = {"exchange": "news", "queue": "q", "key": "a.#"}
    (told,) = road.run("binding add", "news", "q", "--key", "a.#")
    assert told == {"act": "add-binding", **bound, "changed": True}
    row = {"exchange": "news", "binding_key": "a.#", "queue": "q", "arguments": None}
    assert road.run("binding list", "--queue", "q") == [row]
    said = ("--match", "#", "--priority", "2", "--set", "max_depth=9")
    (dry,) = road.run("policy set", "p", *said, "--check", code=10)
    (told,) = road.run("policy set", "p", *said)
    assert dry == {"dry_run": True, **told}
    assert road.run("policy set", "p", *said, "--check")[0]["changed"] is False
    assert (told["policy"], told["altered"], told["changed"]) == ("p", told["queues"], True)
    (row,) = road.run("policy list")
    assert (row["policy"], row["arguments"]) == ("p", {"max_depth": 9})
    assert road.run("policy delete", "p", "--dry-run")[0]["changed"]
    assert road.run("policy delete", "p")[0]["changed"]
    assert road.refused("exchange delete", "news").count("has 1 bindings") == 1
    for more in (("--dry-run",), ()):
        assert road.run("binding remove", "news", "q", "--key", "a.#", *more)[0]["changed"]
    assert road.run("queue create", "late", "--dry-run")[0]["changed"]
    assert road.run("queue alter", "q", "--set", "max_depth=3", "--dry-run")[0]["changed"]
    assert "has 2 messages" in road.refused("queue delete", "q", "--dry-run")
    dry = {"act": "purge-queue", "queue": "q", "dry_run": True, "count": 1, "left": 1}
    assert road.run("queue purge", "q", "--check", code=10) == [dry]
    assert road.run("exchange delete", "news")[0]["changed"]
    (told,) = road.run("queue purge", "q")
    assert len(told.pop("operation")) == 8
    assert told == {"act": "purge-queue", "queue": "q", "done": 1, "left": 1, "gone": 0}
    assert [row["queue"] for row in road.run("queue list")] == ["dead", "later", "other", "q"]
    assert road.audited() == [
        *("create-exchange", "add-binding", "set-policy", "delete-policy"),
        *("remove-binding", "delete-exchange", "purge-queue"),
    ]


def test_an_unknown_queue_is_refused_in_the_same_words_by_either_road(road: Road) -> None:
    refusal = "sparkstore: unknown queue 'absent': see sparkstore queues\n"
    for command in ("queue show", "browse", "queue purge", "queue delete", "queue alter"):
        more = ("--set", "max_depth=1") if command == "queue alter" else ()
        assert road.refused(command, "absent", *more) == refusal
    assert road.refused("queue purge", "absent", "--dry-run") == refusal
    assert road.refused("requeue", "absent", "--id", "1") == refusal
    assert road.refused("redrive", "absent") == refusal


def test_figures_of_queues_are_told_by_either_road(road: Road) -> None:
    figures = ("depth", "acquired", "delayed")
    found = road.run("queues")
    rows = {row["queue"]: tuple(row[name] for name in figures) for row in found}
    assert rows == {"dead": (1, 0, 0), "later": (1, 0, 1), "other": (1, 0, 0), "q": (2, 1, 0)}
    names = tuple(column.name for column in queue_columns.columns_of(queue_columns.Road.COMMAND))
    assert {(*row,) for row in found} == {names}
    assert {row["not_durable"] for row in found} == {0}


def test_one_thing_has_one_word_by_either_road(road: Road) -> None:
    road.run("exchange create", "news", "--type", "topic")
    road.run("queue create", "brief", "--durability", "configuration")
    road.run("policy set", "p", "--match", "brief", "--set", "max_depth=9")
    assert {row["queue"]: row["durability"] for row in road.run("queue list")} == {
        **dict.fromkeys(("dead", "later", "other", "q"), "unsettled-state"),
        "brief": "configuration",
    }
    news = next(row for row in road.run("exchange list") if row["exchange"] == "news")
    assert (news["type"], news["durability"]) == ("topic", "unsettled-state")
    road.run("binding add", "news", "q", "--key", "a.#")
    (row,) = road.run("queue show", "q")
    assert (row["queue"], row["depth"], row["acquired"]) == ("q", 2, 1)
    assert row["durability"] == "unsettled-state"
    assert row["bindings"] == [{"exchange": "news", "binding_key": "a.#"}]
    assert (row["arguments"], row["effective"]) == (None, None)
    (row,) = road.run("queue show", "brief")
    assert row["effective"] == {"max_depth": {"value": 9, "from": "policy p"}}
    brief = next(row for row in road.run("queues") if row["queue"] == "brief")
    assert (row["arguments"], row["effective"]) == (brief["arguments"], brief["effective"])
    assert brief["arguments"] is None
    assert {row["acquired_by"] is None for row in road.run("browse", "q")} == {True, False}


def test_a_repaired_message_takes_the_place_of_another_by_either_road(road: Road) -> None:
    edit = ("1", "--body", "mended", "--property", "color=red")
    (dry,) = road.run("resubmit", *edit, "--dry-run")
    assert dry == {
        "action": "resubmit", "message_id": 1, "from": "dead", "to": "q", "dry_run": True,
        "properties": {"color": "red"}, "body": "mended",
    }  # fmt: skip
    (told,) = road.run("resubmit", *edit)
    assert len(told.pop("operation")) == 8
    assert told == {"action": "resubmit", "message_id": 1, "from": "dead", "to": "q", "done": 1}
    for words, why in (
        (("1",), "message 1 is not on any queue"),
        (("2",), "message 2 is on other, q"),
        (("2", "--queue", "absent"), "absent"),
        (("2", "--queue", "other", "--to", "absent"), "absent"),
        (("2", "--queue", "other", "--unset", "shape"), "shape"),
        (("4",), "a consumer holds it; nothing was done"),
        (("2", "--property", "color=red", "--unset", "color"), "'color': say one of them"),
    ):
        assert why in road.refused("resubmit", *words)
    assert road.audited() == ["resubmit", "resubmit"]  # one of them took nothing
    after = road.place.after()
    assert after.ids("dead") == []
    newest = max(after.ids("q"))
    assert after.reader.read(newest)[0].properties == (("color", "red"),)
    assert (len(after.ids("q")), after.body(newest)) == (3, b"mended")


def test_what_left_a_queue_is_replayed_once_by_either_road(road: Road) -> None:
    road.run("queue purge", "other")
    assert road.run("replay", "other", "--subject", "ham", "--dry-run")[0]["count"] == 0
    assert road.run("replay", "other", "--subject", "eggs", "--check", code=10)[0]["count"] == 1
    (told,) = road.run("replay", "other", "--property", "color=brown", "--to", "dead")
    told.pop("seconds", None)
    rest = {"from": "other", "to": "dead", "done": 1, "left": 0, "gone": 0}
    assert told == {"action": "replay", **rest}
    assert road.run("replay", "other", "--older-than", "0s", "--to", "dead")[0]["done"] == 0
    assert "say which messages" in road.refused("replay", "other")
    assert "such as 90s" in road.refused("replay", "other", "--older-than", "soon")
    assert "absent" in road.refused("replay", "other", "--id", "2", "--to", "absent")
    after = road.place.after()
    assert [after.body(each) for each in after.ids("dead")] == [b"body 0", b"body 0"]


def test_messages_are_exported_with_their_content_by_either_road(
    road: Road, tmp_path: Path
) -> None:
    rows = road.run("export", "q")
    assert [row["message_id"] for row in rows] == [2, 4]
    assert (rows[0]["body"], rows[0]["properties"]) == ("body 0", {"color": "brown"})
    assert rows[0]["header"]["subject"] == "eggs"
    assert road.run("export", "q", "--id", "4", "--subject", "eggs") == rows[1:]
    assert road.run("export", "q", "--older-than", "1d") == []
    road.run("export", "q", "--output", str(tmp_path / "q.jsonl"))
    assert [*map(json.loads, (tmp_path / "q.jsonl").read_text().splitlines())] == rows
    assert "absent" in road.refused("export", "absent")


def test_an_operator_decides_a_branch_by_either_road(road: Road) -> None:
    (row,) = road.run("transactions")
    assert (row["xid"], row["state"], row["operations"]) == (XID_TEXT, "prepared", 1)
    (told,) = road.run("transactions", "--commit", XID_TEXT)
    assert told.pop("by")
    assert told == {"act": "commit-branch", "xid": XID_TEXT, "changed": True}
    assert "heuristically" in road.refused("transactions", "--rollback", XID_TEXT)
    assert road.run("transactions")[0]["state"] == "heuristically committed"
    assert road.run("transactions", "--forget", XID_TEXT)[0]["changed"]
    assert road.run("transactions") == []
    assert road.refused("transactions", "--commit", XID_TEXT)
    assert road.refused("transactions", "--commit", "no xid")
    assert road.place.after().ids("q") == [2]


def test_definitions_come_and_go_by_either_road(road: Road, tmp_path: Path) -> None:
    road.run("policy set", "p", "--match", "#", "--set", "max_depth=9")
    (document,) = road.run("definitions export")
    assert [each["name"] for each in document["queues"]] == ["dead", "later", "other", "q"]
    assert document["policies"][0]["name"] == "p"
    document["queues"].append({"name": "new", "arguments": {"max_depth": 1}})
    document["bindings"].append({"exchange": "absent", "queue": "new"})
    (file := tmp_path / "definitions.json").write_text(json.dumps(document))
    told = road.refused("definitions import", str(file))
    assert "bindings[0]: unknown exchange 'absent'" in told
    assert "nothing is done" in told
    assert road.run("definitions export")[0]["queues"] == document["queues"][:-1]
    document["bindings"].clear()
    file.write_text(json.dumps(document))
    assert len(road.run("definitions import", str(file), "--check", code=10)) == 6
    assert [row["changed"] for row in road.run("definitions import", str(file))] == [
        *(False, False, False, False, True, False)
    ]
    assert len(road.run("definitions import", str(file), "--check")) == 6
    assert arguments_of(road.place.after().state.queues["new"].detail)["max_depth"] == 1


def test_an_undo_that_puts_nothing_back_is_an_error_by_either_road(road: Road) -> None:
    (moved,) = road.run("move", "other", "--to", "dead", "--id", "2")
    (purged,) = road.run("queue purge", "dead")
    (told,) = road.run("undo", moved["operation"], code=1)
    assert (told["restored"], told["done"]) == ({}, 0)
    (told,) = road.run("undo", purged["operation"])
    assert (told["restored"], told["done"]) == ({"dead": 2}, 2)


def test_what_found_nothing_has_no_name_that_an_undo_would_not_know(road: Road) -> None:
    road.run("queue create", "empty")
    for command, *more in (
        ("queue purge", "empty"),
        ("move", "empty", "--to", "dead", "--id", "999"),
        ("requeue", "empty", "--id", "999"),
        ("purge", "empty", "--id", "999"),
        ("redrive", "empty"),
    ):
        (told,) = road.run(command, *more)
        assert (told["operation"], told.get("done", 0)) == (None, 0), command
