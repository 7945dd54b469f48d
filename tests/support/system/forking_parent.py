"""`python -m MODULE …`, forked from one parent that has imported what all of them need.

A broker's start takes two seconds of processor time, most of them imports, and a run of the tests
starts hundreds. What is forked here is a process of its own like any other: it can be killed,
stopped and traced, and it opens its files anew. It has only not imported twice what its parent has.

    client ── connects to the socket ──►  parent   {"module", "arguments", "cwd", "environment"}
           ◄── the process id ──────────           then what the process writes, line by line,
           ◄── "exit CODE" ─────────────           when the parent has seen its end

A client may send two descriptors with its request: they become standard output and standard error.
Else standard output is the connection and standard error goes nowhere: so the JUnit tests of the
Broker-J plugin ask it. The parent has no thread, so a fork is as good as a start. It ends with its
standard input, that is with the process that started it.
"""

from __future__ import annotations

import array
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

IMPORTED = (
    "broker_shim.serve.command",
    "broker_shim.serve.stores",
    "broker_shim.service.service",
    "broker_shim.store.delta",
    "broker_shim.store.remote",
    "sparkstore.cli.command_line",
)
_MAX_REQUEST = 1 << 18
_DESCRIPTORS = array.array("i", (0, 0)).itemsize * 2


class _Child(Exception):
    """Raised in the process that was forked: the stack of its parent ends, then it begins."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request


class _Parent:
    """Forks for whoever connects, and tells each of the end of its process."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._waked, self._waker = socket.socketpair()
        for end in (self._waked, self._waker):
            end.setblocking(False)
        self._clients: dict[int, socket.socket] = {}

    def run(self) -> None:
        """Until standard input ends; raises `_Child` in each process that is forked."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        print("READY", flush=True)
        ready = selectors.DefaultSelector()
        for source in (sys.stdin, self._listener, self._waked):
            ready.register(source, selectors.EVENT_READ)
        try:
            while True:
                sources = [key.fileobj for key, _ in ready.select()]
                if self._waked in sources:
                    self._waked.recv(4096)
                    self._tell_who_ended()
                if self._listener in sources:
                    self._fork(self._listener.accept()[0])
                if sys.stdin in sources:
                    return
        finally:
            ready.close()

    def _fork(self, client: socket.socket) -> None:
        data, passed, _, _ = client.recvmsg(_MAX_REQUEST, socket.CMSG_SPACE(_DESCRIPTORS))
        while data and not data.endswith(b"\n"):
            data += client.recv(_MAX_REQUEST)
        if not data:
            client.close()
            return
        descriptors = array.array("i")
        for _, _, packed in passed:
            descriptors.frombytes(packed[: len(packed) - len(packed) % descriptors.itemsize])
        process = os.fork()
        if process == 0:
            self._become_child(client, descriptors)
            raise _Child(json.loads(data))
        for descriptor in descriptors:
            os.close(descriptor)
        self._clients[process] = client
        client.sendall(b"%d\n" % process)

    def _become_child(self, client: socket.socket, descriptors: array.array[int]) -> None:
        """Only what the process was given stays open."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        out, err = descriptors or (client.fileno(), nothing)
        for number, descriptor in enumerate((nothing, out, err)):
            os.dup2(descriptor, number)
        for descriptor in {nothing, *descriptors}:
            os.close(descriptor)
        for end in (client, *self._clients.values(), self._listener, self._waked, self._waker):
            end.close()

    def _tell_who_ended(self) -> None:
        while self._clients:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            client = self._clients.pop(process)
            with client, suppress(OSError):  # who started it may not ask any more
                client.sendall(b"exit %d\n" % os.waitstatus_to_exitcode(status))


def main(path: str) -> None:
    """Import, listen on a path, and fork until standard input ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    try:
        _Parent(path).run()
    except _Child as child:
        request = child.request
    else:
        return
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    sys.modules.pop(request["module"], None)  # it is run, not imported
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
