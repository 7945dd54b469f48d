"""Take the lease of a root at its start, by what `root.json` and the settings name."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

from sparkstore.config import StoreConfig
from sparkstore.errors import Fenced, InvalidRequest, StoreError
from sparkstore.tables.fencing import change_identity
from sparkstore.tables.root import Identity, is_root, open_root
from sparkstore.witness.lease import Witness
from sparkstore.witness.place import NO_WITNESS, witness_at
from sparkstore.witness.turn import forget

_log = logging.getLogger(__name__)


def claimed(
    path: Path, identity: Identity, config: StoreConfig, locks: ExitStack, *, accept_loss: bool
) -> Witness | None:
    """Take the lease of a root that has a witness, or will be made; None for one without.

    Why the lease is taken before `root.json` names the witness: a root that names one never serves
    without. So of two machines that start with empty folders one makes a root, and the other one
    none. Why one is not replaced by another at once: a replica that knows the old one only could
    be promoted by it.
    """
    had, asked = identity.witness, config.witness
    if asked == NO_WITNESS:
        if had:
            _give_up(had, identity, path)
        return None
    if had and asked and had != asked:
        message = f'{path} has the witness {had}: serve it once with witness = "{NO_WITNESS}",'
        message += f" replicate, then say {asked}"
        raise InvalidRequest(message)
    if not (asked or had):
        return None
    lease_s = config.witness_lease_s
    place = witness_at(asked or had, patience_s=max(1.0, lease_s / 3))
    witness = Witness(place, identity, str(path), lease_s)
    try:
        witness.claim(is_new=not had, accept_loss=accept_loss)
    except InvalidRequest as reason:
        if config.peer and not is_root(path):  # two began at once: be the standby of the first
            raise Fenced(str(reason)) from reason
        raise
    locks.callback(witness.stop)
    witness.start()
    if is_root(path) and not had:
        change_identity(open_root(path), lambda _: {"witness": asked})
    _log.info("%s serves under the witness %s, %g s at a time", path, place.location, lease_s)
    return witness


def _give_up(witness: str, identity: Identity, path: Path) -> None:
    """Serve a root without its witness; one that is gone for good forgets nothing."""
    try:
        forget(witness_at(witness), identity)
    except (StoreError, OSError) as reason:
        text = "%s stays as it is (%s): let no standby of %s run that goes by it"
        _log.warning(text, witness, reason, path)
    change_identity(open_root(path), lambda _: {"witness": ""})
    _log.warning("%s has no witness any more: %s", path, witness)
