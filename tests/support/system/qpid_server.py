"""`qpid-server` as it is published, with whatever is in its lib/opt: real start, real HTTP."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.system.brokerj import MODULE, START_S, STOP_S

_POM = MODULE / "server" / "pom.xml"
_LIB = MODULE / "server" / "target" / "lib"
_ALIASES = ("nameAlias", "defaultAlias", "hostnameAlias")
_HTTP_S = 60


def fetch() -> None:
    """What it is made of, in its folder; one process at a time fetches."""
    with _POM.open() as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not _LIB.is_dir():
            command = ["mvn", "-q", "-B", "-f", str(_POM), "package"]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


class QpidServer:
    """`qpid-server -icp FILE`, its ports for AMQP and HTTP free ones of loopback.

    Args:
        home: QPID_HOME; of it lib/opt is used.
        work: QPID_WORK; also the initial configuration is written there.
        nodes: The `virtualhostnodes` of the initial configuration.
    """

    def __init__(self, home: Path, work: Path, nodes: Sequence[Any]) -> None:
        work.mkdir()
        self._log = work / "stderr"
        initial = work / "initial.json"
        initial.write_text(json.dumps(_configuration(nodes)))
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xmx512m", "-cp", f"{_LIB}/*:{home}/lib/opt/*"),
                    *(f"-DQPID_HOME={home}", f"-DQPID_WORK={work}", "org.apache.qpid.server.Main"),
                    *("-icp", str(initial)),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._said = self._until_ready()

    def _until_ready(self) -> str:
        alarm = threading.Timer(START_S, self._process.kill)
        alarm.start()
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if "BRK-1004" in line:
                break
        alarm.cancel()
        return said

    @property
    def port(self) -> int:
        """Of its AMQP listener."""
        return self._port("BRK-1002 : Starting : Listening on TCP port ([0-9]+)")

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def _port(self, pattern: str) -> int:
        found = re.search(pattern, self._said)
        assert found is not None, self.log
        return int(found[1])

    @property
    def log(self) -> str:
        """What it said until it was ready, and its errors."""
        return self._said + self._log.read_text()

    def ask(self, method: str, path: str, content: object = None) -> Any:
        """Call the management API; what it answers, from JSON."""
        port = self._port("HTTP : Listening on TCP port ([0-9]+)")
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}",
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_HTTP_S) as answer:
            return json.loads(answer.read() or b"null")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(STOP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _configuration(nodes: Sequence[Any]) -> dict[str, Any]:
    common = {"port": 0, "bindingAddress": "127.0.0.1", "authenticationProvider": "anyone"}
    aliases = [{"name": kind, "type": kind} for kind in _ALIASES]
    return {
        "name": "broker",
        "modelVersion": "9.0",
        "authenticationproviders": [{"name": "anyone", "type": "Anonymous"}],
        "ports": [
            {"name": "AMQP", **common, "virtualhostaliases": aliases},
            {"name": "HTTP", **common, "protocols": ["HTTP"]},
        ],
        "plugins": [{"name": "httpManagement", "type": "MANAGEMENT-HTTP"}],
        "virtualhostnodes": [*nodes],
    }
