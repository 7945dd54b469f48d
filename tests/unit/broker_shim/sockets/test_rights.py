"""Every right, over every command of both protocols: as docs/security.md tells it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import proton
import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_1_0.composites import Accepted, Detach, Disposition, Source, Target
from broker_shim.security.rules.permissions import Permission
from broker_shim.security.rules.rights import RIGHTS
from broker_shim.store.interface import Queue
from sparkstore.control.audit import AuditEvent
from tests.support.amqp.amqp_0_10 import Bench010, content
from tests.support.amqp.link_clients import Client, House
from tests.support.amqp.management import ANSWERS, Manager
from tests.support.amqp.rights_door import Door, Grants
from tests.support.checkout import CHECKOUT

READ, WRITE, CREATE, DELETE, ADMIN = Permission
ANY = frozenset(Permission)
TAKE_OR_SEND = frozenset({READ, WRITE})


@pytest.fixture
def door(tmp_path: Path) -> Any:
    it = Door(tmp_path)
    yield it
    it.close()


Do = Callable[[Door, Grants], bool]
"""Does what a row says as somebody with these rights; False if that is not allowed."""


class Row(NamedTuple):
    """One command.

    Attributes:
        said: As docs/security.md calls it.
        needs: Address → the right that is needed there, or some of which one is enough.
        do: Does it.
        protocol: Of the two.
    """

    said: str
    needs: Mapping[str, Permission | frozenset[Permission]]
    do: Do
    protocol: str = "0-10"


def commanded(*commands: Any, **parts: Any) -> Do:
    def do(door: Door, grants: Grants) -> bool:
        client = door.client(grants)
        for each in commands:
            client.do(each, **parts)
        refused = client.of(c.ExecutionException)
        assert [each.error_code for each in refused] in ([], [403])
        return not refused

    return do


def attached(*, is_receiver: bool = True, **fields: Any) -> Do:
    def do(door: Door, grants: Grants) -> bool:
        client = Client(door.house, "box", door.access(grants))
        client.attach("link", is_receiver=is_receiver, **fields)
        refused = [str(told.error.condition) for told, _payload in client.taken(Detach)]
        assert refused in ([], ["amqp:unauthorized-access"])
        return not refused

    return do


def relayed(door: Door, grants: Grants) -> bool:
    """A message whose link has no address is looked at by itself."""
    client = Client(door.house, "box", door.access(grants))
    client.attach("link", is_receiver=False, target=Target())
    if client.taken(Detach):
        return False
    message = proton.Message("body", address="there")
    client.deliver_encoded(b"1", bytes(message.encode()))
    told = [each.state for each, _payload in client.taken(Disposition)]
    return bool(told) and isinstance(told[0], Accepted)


def managed(body: Any = None, **said: Any) -> Do:
    """A request to `$management`, from somebody who may write to the queue of its answer."""

    def do(door: Door, grants: Grants) -> bool:
        client = Client(door.house, "box", door.access({**grants, ANSWERS: WRITE}))
        told = Manager(door.house, client).ask(body, **said)
        assert told.status in {200, 201, 204, 403}, told
        return told.status != 403

    return do


def subscription_taken(door: Door, grants: Grants) -> bool:
    return attached(source=Source(_subscription(door.house)))(door, grants)


def subscription_taken_0_10(door: Door, grants: Grants) -> bool:
    name = _subscription(door.bench)
    return commanded(c.MessageSubscribe(name, "d", 0, 0))(door, grants)


def _subscription(of: House | Bench010) -> str:
    name = "subscription.bob%2Fbox.news"
    of.broker.create_queue(Queue(name), lambda _error: None)
    of.run()
    return name


def own_ended(ending: Any) -> Do:
    bind = c.ExchangeBind("own", "amq.fanout", "k")

    def do(door: Door, grants: Grants) -> bool:
        commands = [c.QueueDeclare("own", exclusive=True), bind, ending]
        return commanded(*commands)(door, {"amq.fanout": READ, **grants})

    return do


ROWS = (
    Row("attach a receiver", {"there": READ}, attached(source=Source("there")), "1.0"),
    Row(
        "attach a receiver to a new queue",
        {"new": READ, "new::#": CREATE},
        attached(source=Source("new")),
        "1.0",
    ),
    Row(
        "attach a durable subscriber",
        {"news": READ, "#": CREATE},
        attached(source=Source("news", 2, "never")),
        "1.0",
    ),
    Row(
        "attach a sender",
        {"there": WRITE},
        attached(is_receiver=False, target=Target("there")),
        "1.0",
    ),
    Row(
        "attach a sender to a new queue",
        {"new": WRITE, "new::#": CREATE},
        attached(is_receiver=False, target=Target("new")),
        "1.0",
    ),
    Row("transfer by its `to`", {"there": WRITE}, relayed, "1.0"),
    Row("attach to it", {"#": ADMIN}, subscription_taken, "1.0"),
    Row("message.subscribe", {"there": READ}, commanded(c.MessageSubscribe("there", "d", 0, 0))),
    Row("message.subscribe to it", {"#": ADMIN}, subscription_taken_0_10),
    Row("message.transfer", {"there": WRITE}, commanded(c.MessageTransfer(""), **content("there"))),
    Row(
        "message.transfer to an exchange",
        {"news": WRITE},
        commanded(c.MessageTransfer("news"), **content("k")),
    ),
    Row("queue.declare", {"new": CREATE}, commanded(c.QueueDeclare("new"))),
    Row("exchange.declare", {"new": CREATE}, commanded(c.ExchangeDeclare("new", "topic"))),
    Row(
        "queue.declare with an alternate exchange",
        {"new": CREATE, "spare": WRITE},
        commanded(c.QueueDeclare("new", "spare")),
    ),
    Row(
        "queue.declare with a dead-letter queue",
        {"new": CREATE, "other": WRITE},
        commanded(c.QueueDeclare("new", arguments={"dead_letter_queue": "other"})),
    ),
    Row(
        "exchange.declare with an alternate exchange",
        {"new": CREATE, "spare": WRITE},
        commanded(c.ExchangeDeclare("new", "topic", "spare")),
    ),
    Row(
        "exchange.bind",
        {"spare": READ, "there": CREATE},
        commanded(c.ExchangeBind("there", "spare", "k")),
    ),
    Row(
        "exclusive queue.declare of one that is there",
        {"there": READ},
        commanded(c.QueueDeclare("there", exclusive=True)),
    ),
    Row("queue.purge", {"there": DELETE}, commanded(c.QueuePurge("there"))),
    Row("queue.delete", {"there": DELETE}, commanded(c.QueueDelete("there"))),
    Row("exchange.delete", {"spare": DELETE}, commanded(c.ExchangeDelete("spare"))),
    Row(
        "exchange.unbind",
        {"news": READ, "there": DELETE},
        commanded(c.ExchangeUnbind("there", "news", "k")),
    ),
    Row("queue.purge of its own", {"own": CREATE}, own_ended(c.QueuePurge("own"))),
    Row("queue.delete of its own", {"own": CREATE}, own_ended(c.QueueDelete("own"))),
    Row(
        "exchange.unbind of its own",
        {"own": CREATE},
        own_ended(c.ExchangeUnbind("own", "amq.fanout", "k")),
    ),
    Row("queue.query", {"there": ANY}, commanded(c.QueueQuery("there"))),
    Row(
        "passive queue.declare",
        {"there": ANY},
        commanded(c.QueueDeclare("there", passive=True)),
    ),
    Row("queue.declare of one that is there", {"there": ANY}, commanded(c.QueueDeclare("there"))),
    Row("exchange.query", {"news": ANY}, commanded(c.ExchangeQuery("news"))),
    Row(
        "passive exchange.declare",
        {"news": ANY},
        commanded(c.ExchangeDeclare("news", "topic", passive=True)),
    ),
    Row(
        "exchange.declare of one that is there",
        {"news": ANY},
        commanded(c.ExchangeDeclare("news", "topic")),
    ),
    Row(
        "exchange.bound",
        {"news": ANY, "there": ANY},
        commanded(c.ExchangeBound("news", "there", "k")),
    ),
    Row(
        "CREATE of a queue",
        {"new": CREATE},
        managed(operation="CREATE", type="queue", name="new"),
        "1.0",
    ),
    Row(
        "CREATE of an exchange",
        {"new": CREATE},
        managed({"exchange_type": "topic"}, operation="CREATE", type="exchange", name="new"),
        "1.0",
    ),
    Row(
        "CREATE of a queue with an alternate exchange",
        {"new": CREATE, "spare": WRITE},
        managed({"alternate_exchange": "spare"}, operation="CREATE", type="queue", name="new"),
        "1.0",
    ),
    Row(
        "CREATE of a queue with a dead-letter queue",
        {"new": CREATE, "other": WRITE},
        managed({"dead_letter_queue": "other"}, operation="CREATE", type="queue", name="new"),
        "1.0",
    ),
    Row(
        "CREATE of an exchange with an alternate exchange",
        {"new": CREATE, "spare": WRITE},
        managed(
            {"exchange_type": "topic", "alternate_exchange": "spare"},
            operation="CREATE",
            type="exchange",
            name="new",
        ),
        "1.0",
    ),
    Row(
        "CREATE of a binding",
        {"spare": READ, "there": CREATE},
        managed(operation="CREATE", type="binding", name="spare/there/k"),
        "1.0",
    ),
    Row(
        "UPDATE",
        {"there": ADMIN},
        managed({"max_depth": 9}, operation="UPDATE", type="queue", name="there"),
        "1.0",
    ),
    Row("PURGE", {"there": DELETE}, managed(operation="PURGE", identity="queue/there"), "1.0"),
    Row(
        "DELETE of a queue",
        {"there": DELETE},
        managed(operation="DELETE", identity="queue/there"),
        "1.0",
    ),
    Row(
        "DELETE of an exchange",
        {"spare": DELETE},
        managed(operation="DELETE", identity="exchange/spare"),
        "1.0",
    ),
    Row(
        "DELETE of a binding",
        {"news": READ, "there": DELETE},
        managed(operation="DELETE", identity="binding/news/there/k"),
        "1.0",
    ),
    Row(
        "READ of a queue", {"there": ANY}, managed(operation="READ", identity="queue/there"), "1.0"
    ),
    Row(
        "READ of an exchange",
        {"news": ANY},
        managed(operation="READ", identity="exchange/news"),
        "1.0",
    ),
    Row(
        "READ of a binding",
        {"news": ANY, "there": ANY},
        managed(operation="READ", identity="binding/news/there/k"),
        "1.0",
    ),
    Row("dtx.select", {"anything": TAKE_OR_SEND}, commanded(c.DtxSelect())),
)


def enough(need: Permission | frozenset[Permission]) -> frozenset[Permission]:
    """The rights of which each is enough."""
    return (frozenset({need}) if isinstance(need, Permission) else need) | {ADMIN}


def table_of_docs() -> set[tuple[str, str, frozenset[str]]]:
    """Protocol, command and rights of each that the table of docs/security.md has."""
    text = (CHECKOUT / "docs" / "security.md").read_text()
    lines = text.split("| to …")[1].split("\n\n")[0].splitlines()[2:]
    found = set()
    for line in lines:
        _, _what, over_1_0, over_0_10, right, _ = (cell.strip() for cell in line.split("|"))
        rights = frozenset(re.findall("`([a-z]+)`", right)) or frozenset({right})
        for protocol, cell in (("1.0", over_1_0), ("0-10", over_0_10)):
            found |= {(protocol, said, rights) for said in cell.split("; ") if said != "-"}
    return found


def shown_rights(row: Row) -> frozenset[str]:
    """As the table has them."""
    needs = frozenset[str]()
    for need in row.needs.values():
        needs |= {"any"} if need is ANY else {need} if isinstance(need, Permission) else need
    return needs


def cases() -> list[Any]:
    """Each row with the rights it needs, and with another right, or none, at one place."""
    found: list[tuple[Row, dict[str, Permission], bool]] = []
    for row in ROWS:
        least = {place: min(enough(need) - {ADMIN} or {ADMIN}) for place, need in row.needs.items()}
        found.append((row, least, True))
        found.append((row, dict.fromkeys(row.needs, ADMIN), True))
        for place, need in row.needs.items():
            others = {other: right for other, right in least.items() if other != place}
            found.append((row, others, False))
            found += [(row, {**least, place: right}, right in enough(need)) for right in Permission]
    return [
        pytest.param(
            *each, id=f"{each[0].protocol} {each[0].said}: {each[1]} {each[2]}".replace(" ", "-")
        )
        for each in found
    ]


@pytest.mark.parametrize(("row", "grants", "is_allowed"), cases())
def test_a_command_needs_the_rights_of_its_row_and_no_others(
    door: Door, row: Row, grants: Grants, *, is_allowed: bool
) -> None:
    assert row.do(door, grants) is is_allowed
    refused = [details["act"] for event, details in door.events if _is_refusal(event)]
    assert bool(refused) is not is_allowed


def _is_refusal(event: AuditEvent) -> bool:
    return event is AuditEvent.PERMISSION_REFUSED


def test_the_docs_have_a_row_for_each_command_with_the_rights_that_it_needs() -> None:
    assert table_of_docs() == {(row.protocol, row.said, shown_rights(row)) for row in ROWS}


def test_every_right_of_the_table_is_walked() -> None:
    """What a client may do by an act that no row has is checked by nobody."""
    walked = {right for row in ROWS for need in row.needs.values() for right in enough(need)}
    assert walked == set(RIGHTS.values())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (c.QueuePurge("there"), {"act": "purge-queue", "queue": "there", "done": 1}),
        (c.QueueDelete("there"), {"act": "delete-queue", "queue": "there", "messages": 1}),
        (c.ExchangeDelete("spare"), {"act": "delete-exchange", "exchange": "spare"}),
        (
            c.ExchangeUnbind("there", "news", "k"),
            {"act": "remove-binding", "queue": "there", "exchange": "news", "key": "k"},
        ),
    ],
)
def test_what_a_client_has_destroyed_is_written_down_with_its_name(
    door: Door, command: object, said: dict[str, object]
) -> None:
    client = door.client({"#": ADMIN})
    client.send("there")
    client.do(command)
    ((event, details),) = door.events
    assert event is AuditEvent.ADMINISTRATION
    told = {name: value for name, value in details.items() if value is not None}
    assert told.pop("force", True)
    assert str(told.pop("peer")) == "10.0.0.7:40312"
    assert told == {"user": "ann", **said}


@pytest.mark.parametrize("ends_by", ["link", "look-up"])
def test_the_end_of_a_durable_subscription_is_written_down_with_its_user(
    door: Door, ends_by: str
) -> None:
    client = Client(door.house, "box", door.access({"#": ADMIN}))
    client.attach("link", source=Source("news", 2, "never"))
    if ends_by == "look-up":
        client.detach()
        client.attach("link", source=None)
        client.detach(closed=True)
    else:
        client.detach(closed=True)
    ((event, details),) = door.events
    assert event is AuditEvent.ADMINISTRATION
    assert (details["act"], details["user"]) == ("unsubscribe", "ann")
    assert details["queue"] == "subscription.ann/box.link"
    assert details["queue"] not in door.house.broker.queues


def test_a_subscription_that_ends_with_its_link_is_no_line(door: Door) -> None:
    client = Client(door.house, "box", door.access({"#": ADMIN}))
    client.attach("link", source=Source("news"))
    client.detach(closed=True)
    assert door.events == []


def test_a_query_tells_of_nothing_where_its_client_may_do_nothing(door: Door) -> None:
    """READ: its rows above. The broker's own exchanges all may know, but no bindings to them."""
    grants = {"there": READ, "spare": WRITE, ANSWERS: WRITE}
    manager = Manager(door.house, Client(door.house, "box", door.access(grants)))
    told = manager.ask({"attributeNames": ["identity"]}, operation="QUERY").body["results"]
    own = [[f"exchange/amq.{each}"] for each in ("direct", "fanout", "match", "topic")]
    assert told == [[f"queue/{ANSWERS}"], ["queue/there"], *own, ["exchange/spare"]]


def test_an_order_means_the_queue_that_its_right_is_for(door: Door) -> None:
    """A short name would let it through to a queue on another address."""
    door.house.broker.create_queue(Queue("eu::mine"), lambda _error: None)
    door.house.run()
    grants = {"mine": ADMIN, ANSWERS: WRITE}
    manager = Manager(door.house, Client(door.house, "box", door.access(grants)))
    for said in ({"operation": "DELETE"}, {"operation": "PURGE"}, {"operation": "READ"}):
        assert manager.ask(type="queue", name="mine", **said).status == 403
    assert (
        manager.ask({"max_depth": 1}, operation="UPDATE", type="queue", name="mine").status == 403
    )
    assert "eu::mine" in door.house.broker.queues


def test_what_is_refused_by_the_queue_is_written_down_too(door: Door) -> None:
    client = door.client({"#": ADMIN})
    client.send("there")
    client.do(c.QueueDelete("there", if_empty=True))
    assert client.of(c.ExecutionException)[0].error_code == 406
    assert "there" in str(door.events[0][1]["error"])


def test_a_queue_that_was_there_is_not_ones_own_by_having_it_alone(door: Door) -> None:
    """Else `create` and `read` would be enough to destroy what others put there."""
    client = door.client({"there": CREATE, "there::#": READ})
    client.do(c.QueueDeclare("there", exclusive=True))
    assert not client.of(c.ExecutionException)
    client.do(c.QueueDelete("there"))
    assert client.of(c.ExecutionException)[0].error_code == 403
    assert "there" in door.bench.broker.queues


def test_a_queue_of_a_session_that_is_over_is_its_own_no_more(door: Door) -> None:
    first = door.client({"own": CREATE})
    first.do(c.QueueDeclare("own", exclusive=True))
    first.lose()
    second = door.client({"own": CREATE, "own::#": READ})
    second.do(c.QueueDeclare("own", exclusive=True))
    second.do(c.QueueDelete("own"))
    assert second.of(c.ExecutionException)[0].error_code == 403


_ASKS: Mapping[str, Callable[[str], object]] = {
    "queue.query": c.QueueQuery,
    "queue.declare": lambda name: c.QueueDeclare(name, passive=True),
    "queue.delete": c.QueueDelete,
    "queue.purge": c.QueuePurge,
    "message.subscribe": lambda name: c.MessageSubscribe(name, "d", 0, 0),
    "exchange.query": c.ExchangeQuery,
    "exchange.declare": lambda name: c.ExchangeDeclare(name, "direct", passive=True),
    "exchange.delete": c.ExchangeDelete,
    "exchange.bound by exchange": c.ExchangeBound,
    "exchange.bound by queue": lambda name: c.ExchangeBound("amq.direct", name),
    "exchange.bound by key": lambda name: c.ExchangeBound(binding_key=name),
    "exchange.bind of the exchange": lambda name: c.ExchangeBind("hers", name, "k"),
    "exchange.bind of the queue": lambda name: c.ExchangeBind(name, "amq.direct", "k"),
    "exchange.unbind": lambda name: c.ExchangeUnbind("hers", name, "k"),
    "alternate of a queue": lambda name: c.QueueDeclare("hers.new", name),
    "alternate of a queue that is there": lambda name: c.QueueDeclare("hers", name),
    "alternate of an exchange": lambda name: c.ExchangeDeclare("hers.new", "direct", name),
    "dead-letter queue": lambda name: c.QueueDeclare(
        "hers.new", arguments={"dead_letter_queue": name}
    ),
}
"""A command → what asks by it for a name; ann may do everything with what is `hers` alone."""


@pytest.mark.parametrize("ask", _ASKS)
@pytest.mark.parametrize("there", ["there", "news"])
def test_who_may_do_nothing_there_does_not_learn_what_there_is(
    door: Door, ask: str, there: str
) -> None:
    door.bench.broker.create_queue(Queue("hers"), lambda _error: None)
    door.bench.run()
    answers = []
    for name in (there, "not-there"):
        client = door.client({"hers.#": ADMIN})
        client.do(_ASKS[ask](name))
        (told,) = client.of(c.ExecutionException)
        answers.append((told.error_code, told.description.replace(repr(name), "NAME")))
        assert client.of(c.ExecutionResult) == []
    assert answers[0] == answers[1]
    assert answers[0][0] == 403
    assert [event for event, _ in door.events] == [AuditEvent.PERMISSION_REFUSED] * 2


@pytest.mark.parametrize("said", ["there", "news", "news/k", "absent", "absent/k", "two"])
@pytest.mark.parametrize("is_receiver", [True, False])
def test_an_attach_tells_who_may_do_nothing_there_nothing_of_what_there_is(
    door: Door, said: str, *, is_receiver: bool
) -> None:
    for name in ("a::two", "b::two"):
        door.house.broker.create_queue(Queue(name), lambda _error: None)
    door.house.run()
    client = Client(door.house, "box", door.access({"hers": ADMIN}))
    terminus = {"source": Source(said)} if is_receiver else {"target": Target(said)}
    client.attach("link", is_receiver=is_receiver, **terminus)
    ((told, _payload),) = client.taken(Detach)
    right = "read" if is_receiver else "write"
    assert told.error.description == f"'ann' has no permission to {right} {said!r}"


def test_of_an_ambiguous_name_a_sender_over_0_10_learns_nothing_either(door: Door) -> None:
    for name in ("a::two", "b::two"):
        door.bench.broker.create_queue(Queue(name), lambda _error: None)
    door.bench.run()
    client = door.client({"hers": ADMIN})
    client.send("two")
    assert client.of(c.ExecutionException)[0].description == (
        "'ann' has no permission to write 'two'"
    )


def test_the_broker_s_own_exchanges_are_known_to_everybody(door: Door) -> None:
    """Clients ask for them before they do anything; what is bound to them is others' affair."""
    client = door.client({"hers": READ})
    client.do(c.ExchangeQuery("amq.topic"))
    client.do(c.ExchangeDeclare("amq.topic", "topic", passive=True))
    client.do(c.ExchangeBound("amq.topic", "hers"))
    assert not client.of(c.ExecutionException)
    client.do(c.ExchangeBound("amq.topic", binding_key="secret"))
    assert client.of(c.ExecutionException)[0].error_code == 403


def test_what_others_bound_is_not_told_by_asking_for_a_queue_of_ones_own(door: Door) -> None:
    door.client({}, "root").do(c.ExchangeBind("there", "amq.direct", "secret"))
    answers = []
    for key in ("secret", "nothing"):
        client = door.client({"hers.#": ADMIN})
        client.do(c.QueueDeclare("hers"))
        for queue in ("hers", "hers.none"):
            client.do(c.ExchangeBound("amq.direct", queue, key))
        answers.append([each.value for each in client.of(c.ExecutionResult)])
    assert answers[0] == answers[1]
    assert all(each.key_not_matched for each in answers[0])


def test_a_queue_is_not_told_of_as_the_key_of_another(door: Door) -> None:
    for key in ("there", "not-there"):
        client = door.client({"hers.#": ADMIN})
        client.do(c.ExchangeBound(queue="hers.none", binding_key=key))
        assert client.of(c.ExecutionException)[0].error_code == 403


def test_who_deletes_an_alternate_exchange_learns_nobody_s_names(door: Door) -> None:
    door.client({}, "root").do(c.QueueDeclare("secret", "spare"))
    client = door.client({"spare": DELETE})
    client.do(c.ExchangeDelete("spare"))
    assert client.of(c.ExecutionException)[0].error_code == 530
    assert "secret" not in client.of(c.ExecutionException)[0].description


def test_a_client_asks_by_one_name_for_a_queue_and_for_an_exchange(door: Door) -> None:
    """So JMS clients of 0-10 find out what an address is; `hers::hers` is a queue's place."""
    client = door.client({"hers::hers": READ})
    client.do(c.ExchangeQuery("hers"))
    assert client.of(c.ExecutionResult)[0].value.not_found
    assert not client.of(c.ExecutionException)


def test_who_may_do_nothing_at_all_learns_nothing_of_branches(door: Door) -> None:
    client = door.client({})
    client.do(c.DtxSelect())
    assert client.of(c.ExecutionException)[0].error_code == 403


def test_answers_go_over_0_10_by_the_rule_for_temporary_queues(door: Door) -> None:
    """As over 1.0: who may write to `temporary` answers, and nobody else reads or destroys it."""
    name = "temporary-1"
    door.bench.broker.create_queue(Queue(name), lambda _error: None)
    door.bench.run()
    door.bench.broker.queues[name].owner = "bob/"
    grants = {"temporary": WRITE}
    assert commanded(c.MessageTransfer(""), **content(name))(door, grants)
    for right in (READ, DELETE):
        grants = {"temporary": right}
        assert not commanded(c.MessageSubscribe(name, "d", 0, 0))(door, grants)
        assert not commanded(c.QueueDelete(name))(door, grants)
    assert commanded(c.QueueDelete(name))(door, {"temporary": ADMIN})
