"""versitygw, an S3 gateway over a folder, in its own process: the judge of conditional puts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.objects.s3_server import BUCKET, use

PACKAGE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


def binary() -> str:
    """The program; built by Go, once for this user, if it is not on the path.

    Building it takes minutes, which is why it serves the tests of `make test-all` only.
    """
    found = shutil.which("versitygw")
    if found is not None:
        return found
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sparkstore-tests"
    built = cache / "versitygw"
    if not built.exists():
        go = shutil.which("go")
        assert go is not None, f"to build the test server: install Go 1.25, or {PACKAGE} yourself"
        environment = {**os.environ, "GOBIN": str(cache)}
        subprocess.run([go, "install", PACKAGE], check=True, env=environment)
    return str(built)


@contextmanager
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A gateway with the bucket `lake`, that this process's environment names."""
    pytest.importorskip("obstore", reason="the extra s3 is not installed")
    (folder / BUCKET).mkdir(parents=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    keys = {"ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "testtest"}
    command = [binary(), "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(folder)]
    gateway = subprocess.Popen(
        command,
        env={**os.environ, **keys},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port)
        use(f"http://127.0.0.1:{port}", monkeypatch)
        yield
    finally:
        gateway.kill()
        gateway.wait()


def _wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < end, "versitygw did not start"
            time.sleep(0.05)
        else:
            return
