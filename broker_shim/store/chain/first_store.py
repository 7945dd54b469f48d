"""The store of a root that is served; one that was a mirror takes the place of the root before it.

A mirror knows by whose witness its first root serves, if it has one. Whoever serves the mirror in
its place takes that witness over first, and waits until the other's lease is over
(`sparkstore.witness`). So the two never tell completions at a time, whoever is cut off from
whom. In this order: the witness names the mirror; the mirror's `root.json` names the witness, and
the next generation; only then the mirror is one no more. A kill between any two of them leaves what
the next start goes on with, and a first root that is fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.store.chain.mirror import place_to_take, take_place
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.config import StoreConfig
from sparkstore.storage.objects import is_object_uri
from sparkstore.tables.fencing import change_identity
from sparkstore.tables.root import Identity, is_root, open_root, path_of
from sparkstore.witness.place import NO_WITNESS, witness_at
from sparkstore.witness.turn import take_over


def first_store(where: str, config: StoreConfig, *, accept_loss: bool = False) -> DeltaMessageStore:
    """Open a root to serve it.

    Args:
        where: Its folder, or its URI in a bucket.
        config: Settings of its store.
        accept_loss: It may be a mirror that was behind when its chain ended, or in a bucket that
            was put back.

    Raises:
        InvalidRequest: It is a mirror that was behind, in a bucket that was put back, or one of a
            root with another witness.
        StoreError: It cannot be opened; another root took the place; the witness did not answer.
    """
    is_bucket = is_object_uri(where)
    may_be_mirror = not (is_bucket or config.witness == NO_WITNESS) and not _witness_of(where)
    looked = replace(config, witness="") if may_be_mirror else config
    store = DeltaMessageStore(where, looked, accept_loss=accept_loss)
    try:
        place = place_to_take(store, accept_loss=accept_loss) or {}
        # One that was killed on the way serves under the witness by now.
        is_due = (is_bucket or may_be_mirror) and config.witness != NO_WITNESS
        if is_due and place.get("witness"):
            _take_witness(store, where, place, config.witness)
        # After the witness: until it names this root, the other one may serve.
        take_place(store, accept_loss=accept_loss)
    except BaseException:
        store.close()
        raise
    is_served_so = is_bucket or not may_be_mirror or not (config.witness or place.get("witness"))
    if is_served_so:
        return store
    store.close()
    return DeltaMessageStore(where, config)


def place_of(first: DeltaMessageStore) -> Mapping[str, Any]:
    """Tell what a mirror has to know of the root that it follows."""
    identity = open_root(first.root.path).identity  # a witness may be new
    return {
        "root_id": identity.root_id,
        "generation": identity.generation,
        "witness": identity.witness,
    }


def _witness_of(where: str) -> str:
    path = path_of(where)
    return open_root(path).identity.witness if is_root(path) else NO_WITNESS


def _take_witness(
    store: DeltaMessageStore, where: str, place: Mapping[str, Any], asked: str
) -> None:
    """Have the first root tell nothing any more.

    Raises:
        InvalidRequest: Another witness was asked for.
    """
    witness = place["witness"]
    if asked and asked != witness:
        message = f"{where} mirrors a root with the witness {witness}: leave witness out, or name"
        raise InvalidRequest(
            f"{message} that; if it is lost for good, stop that root, and say none"
        )
    own = store.root.identity
    before = Identity(own.root_id, primary_id=place["root_id"])
    generation = max(own.generation, place["generation"] + 1)
    take_over(witness_at(witness), before, replace(own, generation=generation), where)
    if not is_object_uri(where):
        changes = {"witness": witness, "generation": generation}
        change_identity(store.root, lambda _: changes)
