"""Ask the server of a kind of question, and start it where none answers.

Two commands at once may both start one. The lock lets one of the two serve; the other ends, and its
command asks the first. A server that ends while it is asked has changed nothing, since a question
is a SELECT: the question is asked again, of Spark in this process. The same holds for a server that
is stopped or hangs. It says every second that it is alive, also while its Spark starts, however
long an answer takes; after `SILENT_S` without a word nobody waits for it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress

from sparkstore.cli.notes import note
from sparkstore.cli.query_result import PrintedAnswer
from sparkstore.cli.sql_server.exchange import BEAT, STOP, Question, answer_of, receive, send
from sparkstore.cli.sql_server.place import (
    ServerPlace,
    is_this_user,
    process_of,
    server_place,
    servers_folder,
)
from sparkstore.errors import InvalidRequest

_START_S, _AGAIN_S = 15.0, 0.02
SILENT_S = 30.0
"""How long a server may say nothing, in seconds."""
OFF = "SPARKSTORE_NO_SERVER"
"""The variable of the environment that keeps `sparkstore sql` from leaving a server behind."""


def ask(effort: str, question: Question) -> PrintedAnswer | None:
    """Ask the server; None: there is none, and none could be started, or it ended meanwhile.

    Raises:
        StoreError: The answer is an error.
    """
    try:
        place = server_place(effort)
    except InvalidRequest as reason:
        note(f"no SQL server, Spark starts here: {reason}")
        return None
    if place is None:
        return None
    connection = _connected(place) or _started(place, effort)
    if connection is None:
        return None
    with connection:
        try:
            send(connection, question._asdict())
            while (told := receive(connection)) == BEAT:
                pass
        except TimeoutError:
            process = process_of(connection)
            note(f"the SQL server says nothing, Spark starts here: kill -9 {process} ends it")
            return None
        except (OSError, EOFError):
            note(f"the SQL server ended before it answered: {place.log} may say why")
            return None
    return answer_of(told)


def stop_servers() -> int:
    """End all servers of this user, also of other versions; return how many there were."""
    folder = servers_folder()
    stopped = 0
    for path in sorted(folder.glob("*.socket")) if folder else ():
        connection = _connected(ServerPlace(path, path, path))
        if connection is None:
            continue
        with connection, suppress(OSError, EOFError):
            send(connection, STOP)
            receive(connection)
            stopped += 1
    return stopped


def _connected(place: ServerPlace) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SILENT_S)
    try:
        connection.connect(str(place.socket))
        if is_this_user(connection):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _started(place: ServerPlace, effort: str) -> socket.socket | None:
    """Start a server that outlives this command, and connect to it or to one that was faster."""
    command = [sys.executable, "-m", "sparkstore.cli.sql_server.server", effort]
    with place.log.open("ab") as log:
        subprocess.run(  # it returns at once: the server is that process's child
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place.socket.parent,
            start_new_session=True,  # so that Ctrl-C ends the question and not the server
        )
    until = time.monotonic() + _START_S
    while (connection := _connected(place)) is None and time.monotonic() < until:
        time.sleep(_AGAIN_S)
    return connection


def is_wanted() -> bool:
    """False if the environment says that no server is to be left behind."""
    return not os.environ.get(OFF)
