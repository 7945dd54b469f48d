"""How `sparkstore serve` ends when it cannot begin, so that systemd knows what to start again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sparkstore.config import StoreConfig
from sparkstore.exit_codes import ExitCode
from sparkstore.log.start import open_log
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.checkout import CHECKOUT
from tests.support.system.clients import TIMEOUT_S

pytestmark = [pytest.mark.system, pytest.mark.slow]


def ended(*words: str) -> tuple[int, str]:
    """How the command ended, and the one line in which it said why."""
    done = subprocess.run(
        [sys.executable, "-m", "broker_shim.serve.command", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert "Traceback" not in done.stderr
    (why,) = (line for line in done.stderr.splitlines() if line.startswith("sparkstore serve: "))
    return done.returncode, why


ANYWHERE = "--listen=127.0.0.1:0"


@pytest.mark.parametrize(
    "words",
    [
        ["--bind", "nowhere:key:q", "--queue", "q"],
        ["--bind", "amq.topic:key:unknown"],
        ["--exchange", "x:none"],
        ["--users", "none.json"],
        ["--config", "none.toml"],
    ],
    ids=" ".join,
)
def test_what_the_command_line_asks_for_and_is_not_there(words: list[str]) -> None:
    assert ended("--memory", ANYWHERE, *words)[0] == ExitCode.WRONG_CALL


@pytest.mark.parametrize(
    "option", ["--listen", "--amqp-0-10", "--metrics-listen", "--store-listen", "--http"]
)
def test_a_port_that_another_process_has(option: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a token that is long enough for it\n")
    token.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        words = [ANYWHERE] if option != "--listen" else []
        words += ["--token-file", str(token)] if option == "--store-listen" else []
        code, why = ended(str(tmp_path / "root"), *words, option, where)
    assert "in use" in why
    assert code == ExitCode.WRONG_CALL


def changed(root: Root, **identity: object) -> None:
    file = root.path / "root.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | identity))


def replica(root: Root) -> None:
    changed(root, role="replica", primary="/var/lib/primary")


def fenced(root: Root) -> None:
    changed(root, role="fenced")


def newer(root: Root) -> None:
    changed(root, schema_version=99)


def torn(root: Root) -> None:
    (root.path / "root.json").write_text("{")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (replica, ExitCode.TAKEN_OVER),
        (fenced, ExitCode.TAKEN_OVER),
        (newer, ExitCode.DAMAGED),
        (torn, ExitCode.DAMAGED),
    ],
)
@pytest.mark.parametrize("how", [[ANYWHERE], ["--no-amqp"]], ids=["broker", "service"])
def test_a_root_that_may_not_be_served(
    change: Callable[[Root], None], code: int, how: list[str], tmp_path: Path
) -> None:
    change(open_or_create_root(tmp_path / "root"))
    assert ended(str(tmp_path / "root"), *how)[0] == code


@pytest.mark.parametrize("how", [[ANYWHERE], ["--no-amqp"]], ids=["broker", "service"])
def test_a_root_that_another_process_has_open(how: list[str], tmp_path: Path) -> None:
    log = open_log(tmp_path / "root", StoreConfig()).log
    try:
        assert ended(str(tmp_path / "root"), *how)[0] == ExitCode.TRY_LATER
    finally:
        log.close()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    if os.system(f"mount -t tmpfs -o size=6m tmpfs {folder} 2>/dev/null"):
        pytest.skip("no mount here")
    try:
        yield folder
    finally:
        os.system(f"umount {folder}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize("how", [[ANYWHERE], ["--no-amqp"]], ids=["broker", "service"])
def test_a_disk_without_room(how: list[str], tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        with suppress(OSError):
            (disk / "ballast").write_bytes(bytes(7 << 20))
        assert ended(str(disk / "root"), *how)[0] == ExitCode.TRY_LATER


@pytest.mark.parametrize("module", ["broker_shim.serve.command", "sparkstore"])
def test_a_process_whose_broker_failed_ends_before_its_interpreter_is_taken_apart(
    module: str,
) -> None:
    """Threads of an engine may panic meanwhile, on a disk that fails: that was a SIGSEGV."""
    words = ["serve", "--memory"] if module == "sparkstore" else ["--memory"]
    program = (
        "import atexit, os, runpy, sys\n"
        "atexit.register(os.abort)\n"  # what is taken apart, dies
        f"sys.argv = ['x', *{words!r}, {ANYWHERE!r}, '--users', 'none.json']\n"
        f"runpy.run_module({module!r}, run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert done.returncode == ExitCode.WRONG_CALL
    assert "none.json" in done.stderr
