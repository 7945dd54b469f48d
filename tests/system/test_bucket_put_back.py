"""`sparkstore serve s3://…` of a bucket that was put back from an older copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.serve.command import main
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from sparkstore.cli.command_line import main as sparkstore
from tests.support.objects.s3_server import served
from tests.support.stores.stores import done
from tests.support.system.processes import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

URI = "s3://lake/queues"


def test_a_bucket_that_was_put_back_is_served_only_if_the_loss_is_accepted(
    start_broker: StartBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with served(monkeypatch) as server:
        for name in ("first", "second"):
            before = dict(server.objects)
            store = DeltaMessageStore(URI)
            done(store.create, Queue(name))
            store.close()
        server.objects = before
        assert main([URI, "--listen=127.0.0.1:0"]) == 2
        refusal = capsys.readouterr().err
        assert "was put back: its journal ends with version 2," in refusal
        assert "which has version 4:" in refusal
        assert start_broker(URI, "--accept-loss").terminate() == 0
        assert start_broker(URI).terminate() == 0
        (aside,) = tmp_path.glob("sparkstore/*/set-aside/*")
        assert sparkstore(["queues", str(aside)]) == 0
        assert "second" in capsys.readouterr().out
        assert sparkstore(["queues", URI]) == 0
        assert "second" not in capsys.readouterr().out
