"""Every order of an administrator, on every road of a client, by everybody: who may give it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.errors import InvalidRequest
from broker_shim.listener_1_0.management.entities import EntityKind
from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.security.rules.permissions import Permission, Rule
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.endpoints import ENDPOINTS
from broker_shim.serve.http.router import EndpointTable
from broker_shim.sockets.client_orders import needed_acts
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.definitions.document import MARK
from tests.support.amqp.link_clients import Client
from tests.support.amqp.management import ANSWERS, Manager
from tests.support.amqp.rights_door import Door, Grants
from tests.support.stores.http_houses import HttpHouse, path_of
from tests.support.stores.stores import DELTA_CONFIG

pytestmark = pytest.mark.slow

ADMIN = frozenset({Permission.ADMIN})
PLACES = {"stranger": "a.#", "part": "b.*", "queues": "b.#::mine", "owner": "b.#", "all": "#"}
"""Who has `admin` where; orders are about `b.one`, `b.new`, … and policies about `b.#`."""
USERS = {f"{place}-{role}": (str(role),) for place in PLACES for role in HttpRole}
RULES = tuple(
    Rule(frozenset({user}), address, ADMIN)
    for place, address in PLACES.items()
    for user in USERS
    if user.startswith(f"{place}-")
)
API = "/api/v1"
POLICY = {"match": "b.#", "arguments": {"max_depth": 1}}
BINDING = {"exchange": "b.news", "queue": "b.one", "key": "k"}
NEW_BINDING = {**BINDING, "key": "other"}


class Roads(NamedTuple):
    """An order as each road says it; None: the road has no such order.

    Attributes:
        http: Method, path, and body of a request that changes nothing.
        definitions: A part of a document, and its entry.
        management: A body and the properties of a request to `$management`.
        commanded: A command of AMQP 0-10.
    """

    http: tuple[str, str, dict[str, Any] | None]
    definitions: tuple[str, dict[str, Any]] | None = None
    management: tuple[Any, dict[str, str]] | None = None
    commanded: Any = None


ORDERS: Mapping[AdminAction, Roads] = {
    AdminAction.CREATE_QUEUE: Roads(
        ("PUT", path_of("b.new"), {}),
        ("queues", {"name": "b.new"}),
        (None, {"operation": "CREATE", "type": "queue", "name": "b.new"}),
        c.QueueDeclare("b.new"),
    ),
    AdminAction.ALTER_QUEUE: Roads(
        ("PATCH", path_of("b.one"), {"set": {"max_depth": 9}}),
        None,
        ({"max_depth": 9}, {"operation": "UPDATE", "type": "queue", "name": "b.one"}),
    ),
    AdminAction.DELETE_QUEUE: Roads(
        ("DELETE", path_of("b.one") + "?dry_run=true", None),
        None,
        (None, {"operation": "DELETE", "identity": "queue/b.one"}),
        c.QueueDelete("b.one"),
    ),
    AdminAction.CREATE_EXCHANGE: Roads(
        ("PUT", API + "/exchanges/b.new", {"type": "topic"}),
        ("exchanges", {"name": "b.new", "type": "topic"}),
        (
            {"exchange_type": "topic"},
            {"operation": "CREATE", "type": "exchange", "name": "b.new"},
        ),
        c.ExchangeDeclare("b.new", "topic"),
    ),
    AdminAction.DELETE_EXCHANGE: Roads(
        ("DELETE", API + "/exchanges/b.spare?dry_run=true", None),
        None,
        (None, {"operation": "DELETE", "identity": "exchange/b.spare"}),
        c.ExchangeDelete("b.spare"),
    ),
    AdminAction.ADD_BINDING: Roads(
        ("POST", API + "/bindings", NEW_BINDING),
        ("bindings", NEW_BINDING),
        (None, {"operation": "CREATE", "type": "binding", "name": "b.news/b.one/other"}),
        c.ExchangeBind("b.one", "b.news", "other"),
    ),
    AdminAction.REMOVE_BINDING: Roads(
        ("DELETE", API + "/bindings?exchange=b.news&queue=b.one&key=k&dry_run=true", None),
        None,
        (None, {"operation": "DELETE", "identity": "binding/b.news/b.one/k"}),
        c.ExchangeUnbind("b.one", "b.news", "k"),
    ),
    AdminAction.SET_POLICY: Roads(
        ("PUT", API + "/policies/new", POLICY), ("policies", {"name": "new", **POLICY})
    ),
    AdminAction.DELETE_POLICY: Roads(("DELETE", API + "/policies/theirs?dry_run=true", None)),
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    folder = tmp_path_factory.mktemp("house")
    slow = replace(DELTA_CONFIG, commit_interval_ms=10_000)  # who asks does not wait for a commit
    it = HttpHouse(folder, USERS, RULES, store=DeltaMessageStore(folder / "root", slow))
    for method, path, body in (
        ("PUT", path_of("b.one"), {}),
        ("PUT", API + "/exchanges/b.news", {"type": "topic"}),
        ("PUT", API + "/exchanges/b.spare", {"type": "topic"}),
        ("POST", API + "/bindings", BINDING),
        ("PUT", API + "/policies/theirs", POLICY),
    ):
        assert it.ask(method, path, "all-admin", body).status == 200
    yield it
    it.stop()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    it = Door(tmp_path)
    root = it.client({}, "root")
    for command in (
        c.QueueDeclare("b.one"),
        c.ExchangeDeclare("b.news", "topic"),
        c.ExchangeDeclare("b.spare", "topic"),
        c.ExchangeBind("b.one", "b.news", "k"),
    ):
        root.do(command)
    manager = Manager(it.house, Client(it.house, "maker", it.access({"#": Permission.ADMIN})))
    it.house.broker.create_queue(Queue("b.one"), lambda _error: None)
    it.house.run()
    for name in ("b.news", "b.spare"):
        manager.ask({"exchange_type": "topic"}, operation="CREATE", type="exchange", name=name)
    told = manager.ask(operation="CREATE", type="binding", name="b.news/b.one/k")
    assert told.status == 201
    yield it
    it.close()


def test_the_table_has_every_order_on_every_road() -> None:
    """A new order, or a kind of thing that `$management` learns of, needs its row here."""
    assert ORDERS.keys() == {*AdminAction}
    kinds = {each.value for each in EntityKind}
    acts = {f"{way}-{kind}" for way in ("create", "delete") for kind in kinds - {"binding"}}
    acts |= {AdminAction.ALTER_QUEUE, AdminAction.ADD_BINDING, AdminAction.REMOVE_BINDING}
    assert {act for act, roads in ORDERS.items() if roads.management} == acts


@pytest.mark.parametrize("act", AdminAction)
@pytest.mark.parametrize("user", USERS)
def test_an_order_over_http_needs_the_role_and_the_right(
    house: HttpHouse, act: AdminAction, user: str
) -> None:
    method, path, body = ORDERS[act].http
    said = None if body is None else {**body, "dry_run": True}
    reply = house.ask(method, path, user, said)
    assert reply.status == (200 if _may(act, user) else 403), reply.body
    if reply.status == 403:
        assert "b." in reply.body["error"] or "needs the role admin" in reply.body["error"]


@pytest.mark.parametrize("act", [act for act, roads in ORDERS.items() if roads.definitions])
@pytest.mark.parametrize("user", USERS)
def test_an_order_in_a_document_needs_the_role_and_the_right(
    house: HttpHouse, act: AdminAction, user: str
) -> None:
    part, entry = cast("tuple[str, dict[str, Any]]", ORDERS[act].definitions)
    said = {"document": {MARK: 1, part: [entry]}, "dry_run": True}
    reply = house.ask("POST", API + "/definitions", user, said)
    assert reply.status == (200 if _may(act, user) else 403), reply.body


def _may(act: AdminAction, user: str) -> bool:
    place, _, role = user.partition("-")
    of_policy = act in {AdminAction.SET_POLICY, AdminAction.DELETE_POLICY}
    return role == HttpRole.ADMIN and place in _enough(is_policy=of_policy)


def _enough(*, is_policy: bool) -> set[str]:
    return {"owner", "all"} if is_policy else {"part", "owner", "all"}


Do = Callable[[Door, Grants, Roads], bool]


def managed(door: Door, grants: Grants, roads: Roads) -> bool:
    assert roads.management is not None
    body, said = roads.management
    access = door.access({ANSWERS: Permission.WRITE, **grants})
    told = Manager(door.house, Client(door.house, "box", access)).ask(body, **said)
    assert told.status in {200, 201, 204, 403}, told
    return told.status != 403


def commanded(door: Door, grants: Grants, roads: Roads) -> bool:
    client = door.client(grants)
    client.do(roads.commanded)
    refused = client.of(c.ExecutionException)
    assert [each.error_code for each in refused] in ([], [403])
    return not refused


@pytest.mark.parametrize(
    ("road", "act"),
    [(managed, act) for act, roads in ORDERS.items() if roads.management]
    + [(commanded, act) for act, roads in ORDERS.items() if roads.commanded],
)
@pytest.mark.parametrize("place", [None, *PLACES])
def test_an_order_over_amqp_needs_the_right(
    door: Door, road: Do, act: AdminAction, place: str | None
) -> None:
    grants = {} if place is None else {PLACES[place]: Permission.ADMIN}
    is_allowed = road(door, grants, ORDERS[act])
    assert is_allowed is (place in _enough(is_policy=False))


@pytest.mark.parametrize("act", ORDERS)
def test_the_endpoint_of_an_order_declares_the_acts_that_it_needs(act: AdminAction) -> None:
    method, path, _ = ORDERS[act].http
    endpoint, _ = EndpointTable(ENDPOINTS).find(method, path.partition("?")[0])
    order = Order(act, "b.one", exchange="b.news", key="k", match="b.#")
    assert endpoint.acts == tuple(needed.act for needed in needed_acts(order, ()))


@pytest.mark.parametrize("act", AdminAction)
def test_the_request_that_an_order_declares_has_an_endpoint_with_its_fields(
    act: AdminAction,
) -> None:
    endpoint, _ = EndpointTable(ENDPOINTS).find(act.method, f"{API}/{act.path}")
    model = endpoint.query if act.method == "DELETE" else endpoint.body
    assert model is not None
    assert {*act.fields} <= {*model.__struct_encode_fields__}
    assert endpoint.has_dry_run


@pytest.mark.parametrize(
    "module", sorted({endpoint.run.__module__ for endpoint in ENDPOINTS if endpoint.role})
)
def test_an_act_that_a_function_checks_is_declared_of_an_endpoint_beside_it(module: str) -> None:
    declared = {
        act
        for endpoint in ENDPOINTS
        if endpoint.run.__module__ == module
        for act in (*endpoint.acts, *endpoint.target_acts)
    }
    names = set(re.findall(r"\bAct\.(\w+)", inspect.getsource(import_module(module))))
    assert {Act[name] for name in names} <= declared


def test_the_right_at_a_queue_in_the_path_is_looked_at_by_its_name() -> None:
    """An endpoint with such a path gets its queue, if it declares acts, by what checks them."""
    for endpoint in ENDPOINTS:
        if "{queue}" in endpoint.path and endpoint.acts:
            text = inspect.getsource(endpoint.run)
            is_order = "call.order(" in text or "_queue(call)" in text
            assert "call.named_queue()" in text or is_order, endpoint.path


def test_an_order_that_no_table_has_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no right is defined for it"):
        list(needed_acts(Order(cast("AdminAction", "invented"), "b.one"), ()))


@pytest.mark.parametrize(
    ("match", "arguments"),
    [
        ("b.#", {"message_ttl_ms": 1, "dead_letter_queue": "a.mine"}),
        ("b.#", {"max_depth": 1}),
        ("#", {"max_depth": 1}),
        ("*.secret", {"max_depth": 1}),
        ("#.a", {"max_depth": 1}),
        ("a", {"dead_letter_queue": "b.one"}),
    ],
)
def test_a_policy_over_what_others_have_is_refused(
    house: HttpHouse, match: str, arguments: dict[str, Any]
) -> None:
    said = {"match": match, "arguments": arguments}
    assert house.ask("PUT", API + "/policies/steal", "stranger-admin", said).status == 403
    document = {MARK: 1, "policies": [{"name": "steal", **said}]}
    reply = house.ask("POST", API + "/definitions", "stranger-admin", {"document": document})
    assert reply.status == 403
    names = [
        each["name"] for each in house.ask("GET", API + "/policies", "all-admin").body["items"]
    ]
    assert names == ["theirs"]


def test_a_policy_of_another_is_neither_replaced_nor_deleted(house: HttpHouse) -> None:
    """To replace it takes its arguments away from what it covers, as its deletion does."""
    mine = {"match": "a.#", "arguments": {"max_depth": 1}}
    assert house.ask("PUT", API + "/policies/theirs", "stranger-admin", mine).status == 403
    assert house.ask("DELETE", API + "/policies/theirs", "stranger-admin").status == 403
    assert house.ask("PUT", API + "/policies/mine", "stranger-admin", mine).status == 200
    assert house.ask("DELETE", API + "/policies/mine", "stranger-admin").status == 200
