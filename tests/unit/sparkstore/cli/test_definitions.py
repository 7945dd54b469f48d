"""`sparkstore definitions`: out of a root, into another, and from other brokers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from broker_shim.settings_documents import DECLARED
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.cli.command_line import main
from sparkstore.core.policies import CATEGORY
from sparkstore.declared_settings import settings_of
from tests.support.checkout import CHECKOUT
from tests.support.stores.stores import DELTA_CONFIG, done

RABBITMQ = {
    "rabbit_version": "4.1.0",
    "vhosts": [{"name": "/"}],
    "users": [{"name": "guest"}],
    "policies": [
        {
            "vhost": "/", "name": "eu", "pattern": "^orders\\.eu\\.", "apply-to": "queues",
            "priority": 3,
            "definition": {
                "max-length": 5, "dead-letter-exchange": "", "dead-letter-routing-key": "dead",
                "ha-mode": "all",
            },
        },
        {"vhost": "/", "name": "every", "pattern": ".*", "definition": {"message-ttl": 9}},
        {"vhost": "/", "name": "part", "pattern": "^ord", "definition": {"message-ttl": 9}},
        {"vhost": "/", "name": "nothing", "pattern": "", "definition": {"queue-mode": "lazy"}},
        {
            "vhost": "/", "name": "routed", "pattern": "", "apply-to": "exchanges",
            "definition": {"alternate-exchange": "lost"},
        },
    ],
    "exchanges": [
        {"name": "land", "vhost": "/", "type": "headers", "durable": True, "arguments": {}},
        {
            "name": "news", "vhost": "/", "type": "topic", "durable": True,
            "arguments": {"alternate-exchange": "lost"},
        },
        {"name": "lost", "vhost": "/", "type": "fanout", "durable": True, "arguments": {}},
        {"name": "later", "vhost": "/", "type": "x-delayed-message", "durable": True},
    ],
    "queues": [
        {
            "name": "orders", "vhost": "/", "durable": True, "auto_delete": False,
            "arguments": {
                "x-queue-type": "quorum", "x-message-ttl": 60000, "x-max-length": 10,
                "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
                "x-delivery-limit": 5, "x-max-priority": 9, "x-single-active-consumer": True,
            },
        },
        {"name": "dead", "vhost": "/", "durable": True, "arguments": {}},
        {"name": "brief", "vhost": "/", "durable": False, "arguments": {}},
        {"name": "tape", "vhost": "/", "durable": True, "arguments": {"x-queue-type": "stream"}},
    ],
    "bindings": [
        {
            "source": "news", "vhost": "/", "destination": "orders", "destination_type": "queue",
            "routing_key": "order.#", "arguments": {},
        },
        {
            "source": "amq.headers", "vhost": "/", "destination": "dead",
            "destination_type": "queue", "routing_key": "",
            "arguments": {"x-match": "any", "land": "eu"},
        },
        {"source": "news", "destination": "lost", "destination_type": "exchange"},
    ],
}  # fmt: skip
ARTEMIS = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <acceptors/>
  <address-settings>
    <address-setting match="#">
      <dead-letter-address>DLQ</dead-letter-address><expiry-address>DLQ</expiry-address>
      <max-delivery-attempts>10</max-delivery-attempts><redelivery-delay>0</redelivery-delay>
      <auto-create-queues>true</auto-create-queues>
    </address-setting>
    <address-setting match="orders.*">
      <max-delivery-attempts>3</max-delivery-attempts><expiry-delay>1000</expiry-delay>
      <max-size-messages>50</max-size-messages><address-full-policy>FAIL</address-full-policy>
      <redelivery-delay>100</redelivery-delay>
      <redelivery-delay-multiplier>2.0</redelivery-delay-multiplier>
    </address-setting>
  </address-settings>
  <addresses>
    <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
    <address name="orders.eu"><anycast>
      <queue name="orders.eu" last-value-key="id"><durable>true</durable></queue>
    </anycast></address>
    <address name="newest"><anycast>
      <queue name="newest" ring-size="3" exclusive="true" last-value="false"/>
    </anycast></address>
    <address name="prices"><multicast>
      <queue name="desk" max-consumers="1"><filter string="a = 1"/></queue>
    </multicast></address>
  </addresses>
</core></configuration>"""


ONE_ACTIVE = {"single_active_consumer": True}


def empty(path: Path) -> str:
    """A root that a broker has served: it has the exchanges of every broker."""
    store = DeltaMessageStore(path, DELTA_CONFIG)
    done(store.create, Exchange("amq.topic", "topic"))
    done(store.create, Exchange("amq.match", "headers"))
    store.close()
    return str(path)


def policy(match: str, priority: int, **arguments: Any) -> dict[str, Any]:
    return {"match": match, "priority": priority, "arguments": arguments}


@pytest.fixture
def root(tmp_path: Path) -> str:
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Exchange("lost", "fanout"))
    done(store.create, Exchange("land", "headers", arguments={"alternate_exchange": "lost"}))
    done(store.create, Queue("orders", arguments={"max_depth": 9, "dead_letter_queue": "dead"}))
    done(store.create, Queue("dead"))
    done(store.bind, ExchangeBindingKey("land", "orders", ""), {"x-match": "any", "land": "eu"})
    done(store.configure, CATEGORY, "all", policy("#", 0, max_depth=7, message_ttl_ms=5))
    done(store.configure, CATEGORY, "late", policy("orders.#", 9, message_ttl_ms=8))
    store.close()
    return str(tmp_path / "root")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return empty(tmp_path / "target")


def written(folder: str, document: object) -> str:
    path = Path(folder).parent / "definitions"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def exported(capsys: pytest.CaptureFixture[str], root: str) -> dict[str, Any]:
    assert main(["definitions", "export", root]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def rows(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert main(["definitions", "import", *argv, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_what_is_exported_is_imported_elsewhere(
    root: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = exported(capsys, root)
    assert [each["name"] for each in document["queues"]] == ["dead", "orders"]
    nothing, file = exported(capsys, target), written(target, document)
    dry = rows(capsys, target, file, "--dry-run")
    assert (len(dry), {row["changed"] for row in dry}) == (7, {True})
    assert exported(capsys, target) == nothing
    assert main(["definitions", "import", target, file, "--check"]) == 10
    capsys.readouterr()
    assert all(row["changed"] for row in rows(capsys, target, file))
    assert exported(capsys, target) == document
    assert not any(row["changed"] for row in rows(capsys, target, file))
    assert main(["definitions", "import", target, file, "--check"]) == 0


def effective(capsys: pytest.CaptureFixture[str], root: str, queue: str) -> dict[str, Any]:
    assert main(["queue", "show", root, queue, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)["effective"]
    return {name: each["value"] for name, each in told.items()}


def test_policies_are_exported_and_an_import_applies_them(
    root: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = exported(capsys, root)
    assert document["policies"] == [
        {"name": "late", **policy("orders.#", 9, message_ttl_ms=8)},
        {"name": "all", **policy("#", 0, max_depth=7, message_ttl_ms=5)},
    ]
    rows(capsys, target, written(target, document))
    orders = {"max_depth": 9, "dead_letter_queue": "dead", "message_ttl_ms": 8}
    assert effective(capsys, target, "orders") == orders
    assert effective(capsys, target, "dead") == {"max_depth": 7, "message_ttl_ms": 5}


def test_a_policy_that_is_there_otherwise_is_no_more_replaced_than_a_queue(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = exported(capsys, root)
    other = {"name": "all", **policy("#", 1, max_depth=7)}
    document = {"sparkstore_definitions": 1, "queues": [{"name": "new"}], "policies": [other]}
    assert main(["definitions", "import", root, written(root, document)]) == 2
    assert "policies[0] 'all': policy 'all' is there as" in capsys.readouterr().err
    assert exported(capsys, root) == before


def test_of_a_document_that_is_half_wrong_nothing_is_done(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        "sparkstore_definitions": 1,
        "queues": [
            {"name": "good"},
            {"name": "deep", "arguments": {"max_dept": 3}},
            {"name": "brief", "durability": "none"},
            {"nam": "x"},
            "orders",
        ],
        "exchanges": [{"name": "news", "type": "topik"}],
        "bindings": [{"exchange": "amq.topic", "queue": "nope", "key": "a"}],
        "policies": [
            {"name": "fine", "match": "#", "arguments": {"max_depth": 3}},
            {"name": "deep", "match": "#", "arguments": {"max_dept": 3}},
            {"name": "first", "match": "#", "priority": True, "arguments": {"max_depth": 3}},
            {"name": "wild", "match": "a*", "arguments": {"max_depth": 3}},
        ],
    }
    before = exported(capsys, target)
    assert main(["definitions", "import", target, written(target, wrong)]) == 2
    told = capsys.readouterr().err.splitlines()
    for place, text in (
        ("queues[1] 'deep'", "did you mean 'max_depth'?"),
        ("queues[2] 'brief'", "say configuration or unsettled-state"),
        ("queues[3]", "did you mean 'name'?"),
        ("queues[4]", "it must be an object"),
        ("exchanges[0] 'news'", "say one of direct"),
        ("bindings[0]", "unknown queue 'nope'"),
        ("policies[1] 'deep'", "did you mean 'max_depth'?"),
        ("policies[2] 'first'", "priority is true or false: it must be a number"),
        ("policies[3] 'wild'", "stand for whole words"),
    ):
        assert any(f": {place}: " in line and text in line for line in told), place
    assert told[-1].endswith("nothing is done")
    assert "9 errors" in told[-1]
    assert exported(capsys, target) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[]", "a JSON object is wanted"),
        ("{}", "nor RabbitMQ's"),
        ('{"sparkstore_definitions": 2}', "this version reads 1"),
        ('{"sparkstore_definitions": 1, "queue": []}', "queue: is no part"),
        ('{"sparkstore_definitions": 1, "queues": {}}', "queues: is an object: it must be a list"),
        ('{"sparkstore_definitions": 1, "queues": [{"name": 7}]}', "name is a number"),
        ("<core>", "no XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "a document type"),
        ("<broker/>", "has no element core"),
        ("<core><addresses><address/></addresses></core>", "an address has no name"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    target: str, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert main(["definitions", "import", target, written(target, text)]) == 2
    assert said in capsys.readouterr().err


def test_definitions_of_rabbitmq_come_as_far_as_they_map(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = rows(capsys, target, written(target, RABBITMQ))
    left = {row["left_out"]: row["reason"] for row in told if "left_out" in row}
    assert set(left) == {
        "exchanges[3] 'later'", "queues[2] 'brief'", "queues[3] 'tape'",
        "bindings[2] 'news' → 'lost'", "users", "policies", "policies[0] 'eu'",
        "policies[2] 'part'", "policies[3] 'nothing'", "policies[4] 'routed'",
    }  # fmt: skip
    found = exported(capsys, target)
    queues = {each["name"]: each["arguments"] for each in found["queues"]}
    assert queues == {
        "dead": {},
        "orders": {
            "message_ttl_ms": 60000, "max_depth": 10, "when_full": "drop_head",
            "dead_letter_queue": "dead", "max_delivery_count": 5, "single_active_consumer": True,
        },
    }  # fmt: skip
    limit = {"max_depth": 5, "when_full": "drop_head", "dead_letter_queue": "dead"}
    assert found["policies"] == [
        {"name": "eu", **policy("orders.eu.*.#", 3, **limit)},
        {"name": "every", **policy("#", 0, message_ttl_ms=9)},
    ]
    exchanges = {each["name"]: each["arguments"] for each in found["exchanges"]}
    assert exchanges["news"] == {"alternate_exchange": "lost"}
    keys = {(each["exchange"], each["queue"], each["key"]) for each in found["bindings"]}
    assert keys == {("news", "orders", "order.#"), ("amq.match", "dead", "")}


def test_one_virtual_host_of_rabbitmq_is_chosen(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queues = [{"name": f"q{host}", "vhost": host, "durable": True} for host in ("a", "b")]
    file = written(target, {"vhosts": [], "queues": queues})
    assert main(["definitions", "import", target, file]) == 2
    assert "vhosts: a root is one virtual host: choose 'a' or 'b'" in capsys.readouterr().err
    assert main(["definitions", "import", target, file, "--vhost", "c"]) == 2
    assert "vhosts: the document has no 'c', but 'a', 'b'" in capsys.readouterr().err
    (row,) = rows(capsys, target, file, "--vhost", "b")
    assert row["queue"] == "qb"


def test_a_broker_xml_of_artemis_comes_as_far_as_it_maps(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(target, ARTEMIS)
    told = rows(capsys, target, file)
    left = [f"{row['left_out']}: {row['reason']}" for row in told if "left_out" in row]
    assert any(each.startswith("core/acceptors") for each in left)
    assert any("'prices'" in each and "multicast" in each for each in left)
    filters = "address 'prices' queue 'desk': element 'filter'"
    assert filters in left
    assert [each for each in left if "auto-create" in each] == [
        "address 'DLQ' queue 'DLQ' and 3 more: setting 'auto-create-queues'",
    ]
    dead = {"dead_letter_queue": "DLQ", "max_delivery_count": 9}
    queues = {each["name"]: each["arguments"] for each in exported(capsys, target)["queues"]}
    assert queues["orders.eu"] == {
        "last_value_key": "id", "dead_letter_queue": "DLQ", "max_delivery_count": 2,
        "message_ttl_ms": 1000, "max_depth": 50, "when_full": "reject",
        "retry_delay_ms": 100, "retry_delay_multiplier": 2, "max_retry_delay_ms": 1000,
    }  # fmt: skip
    assert queues["newest"] == {
        "max_depth": 3, "when_full": "drop_head", "single_active_consumer": True, **dead,
    }  # fmt: skip
    assert queues["prices::desk"] == {"exclusive": True, **dead}
    assert main(["definitions", "import", target, file]) == 0
    assert "is there     queue DLQ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "arguments", "left"),
    [
        ("<max-redelivery-delay>500</max-redelivery-delay>", {}, ""),
        (
            "<redelivery-delay>9</redelivery-delay>"
            "<max-redelivery-delay>500</max-redelivery-delay>"
            "<redelivery-delay-multiplier>3</redelivery-delay-multiplier>",
            {"retry_delay_ms": 9, "retry_delay_multiplier": 3, "max_retry_delay_ms": 500},
            "",
        ),
        (
            "<redelivery-delay>9</redelivery-delay>"
            "<redelivery-delay-multiplier>1.5</redelivery-delay-multiplier>",
            {"retry_delay_ms": 9},
            "redelivery-delay-multiplier 1.5",
        ),
        ("<default-exclusive-queue>true</default-exclusive-queue>", ONE_ACTIVE, ""),
        ("<default-exclusive-queue>false</default-exclusive-queue>", {}, ""),
        ("<default-ring-size>-1</default-ring-size>", {}, ""),
        (
            "<default-ring-size>7</default-ring-size><max-size-messages>9</max-size-messages>"
            "<address-full-policy>FAIL</address-full-policy>",
            {"max_depth": 7, "when_full": "drop_head"},
            "beside its ring",
        ),
    ],
)
def test_a_setting_of_artemis_becomes_the_argument_that_means_it(
    target: str,
    capsys: pytest.CaptureFixture[str],
    settings: str,
    arguments: dict[str, Any],
    left: str,
) -> None:
    """Also what comes without effect: a longest delay of none, and what is said as by default."""
    text = (
        f'<core><address-settings><address-setting match="#">{settings}</address-setting>'
        '</address-settings><addresses><address name="q"><anycast><queue name="q"/></anycast>'
        "</address></addresses></core>"
    )
    told = rows(capsys, target, written(target, text))
    (queue,) = exported(capsys, target)["queues"]
    assert queue["arguments"] == arguments
    reasons = [row["reason"] for row in told if "left_out" in row]
    assert len(reasons) == bool(left)
    assert left in "".join(reasons)


def test_advice_about_what_is_left_out_names_settings_and_options_that_are(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {(each.PLACE[1:-1], name) for each in DECLARED for name in settings_of(each)}
    named = {
        found
        for path in (CHECKOUT / "sparkstore" / "operations" / "definitions").glob("*.py")
        for found in re.findall(r"\[([a-z]\w*)\] (\w+)", path.read_text())
        if found[1] != "of"  # "[security] of the settings": all of it
    }
    assert named
    assert named <= known
    assert main(["serve", target, "--multicast", "prices", "--listen", "nowhere"]) == 2
    assert "--listen" in capsys.readouterr().err, "it is refused by that, and not by --multicast"
