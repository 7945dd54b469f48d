"""`sparkstore serve` with the store service: beside AMQP, alone, over TCP; told what is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.checkout import CHECKOUT
from tests.support.roots.logs import until
from tests.support.stores.services import ServiceProcess, short_folder
from tests.support.stores.stores import TIMEOUT_S, done

pytestmark = [pytest.mark.system, pytest.mark.slow]

TOKEN = "a token of 24 letters"
KEEPS = {"keeps": "unsettled-state"}


def serve(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "broker_shim.serve.command", *arguments],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_alone_it_listens_in_its_root_and_stops_cleanly_when_told() -> None:
    with short_folder() as folder, serve(str(folder / "root"), "--no-amqp", "--json") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        path = folder / "root" / "service.sock"
        assert ready == {
            "ready": f"unix:{path}",
            "root": str(folder / "root"),
            "store": [],
            **KEEPS,
        }
        store = RemoteMessageStore(ready["ready"], retry_s=1)
        done(store.create, Queue("q"))
        done(store.enqueue, store.message(MessageHeader(), b"x"), "q")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=TIMEOUT_S)
        store.close()
        assert process.returncode == 0, told
        assert "SIGHUP: a service without AMQP reads nothing again" in told
        assert "requests=2 refused=0" in told
        assert "stopped cleanly" in told


def test_over_tcp_a_member_needs_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    arguments = [str(tmp_path / "root"), "--no-amqp", "--store-listen", "127.0.0.1:0"]
    with serve(*arguments, "--token-file", str(token)) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        assert url.startswith("tcp:127.0.0.1:")
        with pytest.raises(InvalidRequest, match="wrong token"):
            RemoteMessageStore(url, MemberIdentity("m", "i", token="another token, as long"))
        store = RemoteMessageStore(url, MemberIdentity("m", "i", token=TOKEN))
        done(store.create, Queue("q"))
        store.close()
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--no-amqp"], "give the folder"),
        (["--memory", "--no-amqp"], "needs a root"),
        (["--memory", "--no-amqp", "--store-socket", "s"], "needs a root"),
        (["--store", "unix:s", "--store-socket", "s"], "needs a root"),
        (["ROOT", "--token-file", "t"], "--store-listen"),
        (["ROOT", "--no-amqp", "--store-listen", "127.0.0.1:0"], "needs --token-file"),
        (
            ["ROOT", "--no-amqp", "--store-listen", "127.0.0.1:0", "--token-file", "/nowhere/t"],
            "/nowhere/t",
        ),
        (["ROOT", "--no-amqp", "--store-listen", "0.0.0.0:0", "--token-file", "T"], "loopback"),
        (["ROOT", "--no-amqp", "--store-socket", "x" * 120], "at most 107 bytes"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_wrong_call_is_told_in_one_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    names = {"ROOT": str(tmp_path / "root"), "T": str(token)}
    run = subprocess.run(
        [sys.executable, "-m", "broker_shim.serve.command"]
        + [names.get(word, word) for word in arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert run.returncode == 2
    assert not (tmp_path / "root").exists()
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("sparkstore serve: ")
    assert told in last


def test_counters_are_written_for_prometheus(tmp_path: Path) -> None:
    metrics = tmp_path / "service.prom"
    with short_folder() as folder:
        service = ServiceProcess(tmp_path / "root", folder / "s", "--metrics-file", str(metrics))
        service.start()
        store = RemoteMessageStore(folder / "s")
        done(store.create, Queue("q"))
        store.close()
        assert service.stop() == 0
        service.close()
    until(metrics.exists)
    assert "sparkstore_service_requests_total 1.0\n" in metrics.read_text()
