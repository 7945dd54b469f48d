"""A chain of two stores against the model, and the second store against the first."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from broker_shim.store.chain.chain import MessageStoreChain
from broker_shim.store.chain.mirror import Mirror
from broker_shim.store.chain.place import Tolerance
from tests.support.histories.store_machine import StoreMachine
from tests.support.stores.chains import contents
from tests.support.stores.stores import RecordedMessageStore


class ChainMachine(StoreMachine):
    """The first store is what the machine is about; another follows it, most of the time."""

    name = "recorded"
    keeps_branches = False

    def __init__(self) -> None:
        super().__init__()
        self.mirror_log: list[bytes] = []
        self.join()

    def join(self) -> None:
        """Both are opened, and the second catches up."""
        self.mirror_store = RecordedMessageStore(self.mirror_log)
        mirror = Mirror("mirror", self.mirror_store, self.home.store)
        mirror.catch_up()
        self.chain = MessageStoreChain(self.home.store, [(mirror, Tolerance(may_drop=True))])

    def teardown(self) -> None:
        self.mirror_store.close()
        super().teardown()

    @property
    def store(self) -> MessageStoreChain:
        return self.chain

    def restarted(self) -> None:
        self.mirror_store.close()
        self.join()
        super().restarted()

    @rule()
    def fall_behind(self) -> None:
        """From now on the second store is told nothing, as if there had been a crash."""
        self.chain._places[0]._drop("it is left behind")

    @precondition(lambda self: not self.is_followed and not self.transactions)
    @rule()
    def catch_up(self) -> None:
        self.mirror_store.close()
        self.join()

    @property
    def is_followed(self) -> bool:
        return self.chain.members[0].failure is None

    @precondition(lambda self: self.is_followed)
    @invariant()
    def both_are_alike(self) -> None:
        assert contents(self.mirror_store) == contents(self.home.store)


@pytest.mark.slow
def test_a_chain_does_what_the_model_does_and_its_second_store_what_its_first_does() -> None:
    run(ChainMachine, settings=settings(stateful_step_count=40))
