"""What is of tier configuration is in records, too: whoever serves next has it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from broker_shim.store.link_stores import link_stores_of
from sparkstore.standby.port import StandbyPort
from sparkstore.standby.stand_by import finish
from tests.support.roots.logs import until
from tests.support.roots.pairs import PAIR, TOKEN, port_of, standing_by
from tests.support.stores.links import sender, terms
from tests.support.stores.stores import done

pytestmark = pytest.mark.slow


def test_queues_exchanges_bindings_and_termini_are_at_the_standby_when_they_are_confirmed(
    tmp_path: Path,
) -> None:
    tier = TerminusDurability.CONFIGURATION
    store = DeltaMessageStore(tmp_path / "a", PAIR)
    port = StandbyPort(store.log, socket.create_server(("127.0.0.1", 0)), TOKEN)
    with standing_by(tmp_path / "b", port_of(port)) as standby:
        until(lambda: standby.is_live)
        done(store.create, Queue("q", durability=tier))
        done(store.create, Exchange("e", "topic", durability=tier))
        done(store.bind, ExchangeBindingKey("e", "q", "#"), {})
        done(store.configure, "policies", "p", {"pattern": "q"})
        done(link_stores_of(store).links.attach, sender("l"), terms(durability=tier))
        expected = store.recover()
        assert standby.position == store.log.synced_position
    port.close()
    store.close()
    finish(tmp_path / "b")
    next_one = DeltaMessageStore(tmp_path / "b", PAIR)
    recovered = next_one.recover()
    assert recovered.links.keys() == expected.links.keys() == {sender("l")}
    for part in ("queues", "exchanges", "bindings", "configured"):
        assert getattr(recovered, part) == getattr(expected, part) != {}
    next_one.close()
