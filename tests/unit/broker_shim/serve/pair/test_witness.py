"""A start whose witness does not answer waits for it, and says so."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.serve.pair.witness import wait_for_witness
from broker_shim.serve.probes import Probes
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.config import StoreConfig


def test_a_start_waits_until_its_folder_is_mounted_and_a_slip_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    witness, root = tmp_path / "witness", tmp_path / "root"
    witness.mkdir()
    config = StoreConfig(witness=str(witness), witness_lease_s=0.3)
    with closing(DeltaMessageStore(root, config)):
        pass
    probes, waits = Probes(), list[str | None]()

    def wait(_seconds: float) -> None:
        waits.append(probes.readiness())
        if len(waits) == 2:
            witness.mkdir()  # where it is to be mounted
        if len(waits) == 4:
            witness.rmdir()
            (tmp_path / "elsewhere").rename(witness)

    wait_for_witness(str(root), config, probes, wait)
    assert waits == []  # it answers
    witness.rename(tmp_path / "elsewhere")
    for setting in (str(tmp_path / "slip"), "none"):
        wait_for_witness(str(root), StoreConfig(witness=setting), probes, wait)
    wait_for_witness(str(tmp_path / "new"), config, probes, wait)
    assert waits == []
    wait_for_witness(str(root), StoreConfig(), probes, wait)  # its root knows the place
    assert len(waits) == 4
    assert waits[0] is not None
    assert "waiting for the witness" in waits[0]
    texts = [record.getMessage() for record in caplog.records if "witness" in record.getMessage()]
    assert ["mount or create it" in text for text in texts] == [True, False, False]
    assert "has no object" in texts[1]
    assert texts[2].startswith("the witness answers")
