"""`python -m sparkstore.cli.sql_server.server EFFORT`: one Spark session for many questions.

Each question has a thread and a session of its own on the one Spark: views of another root, or a
setting, are never seen by it. Its views are made anew, and Delta looks for new versions of each
table at each query. So an answer is never older than its question. What Delta remembers of a table
is forgotten if its past was written anew (`seen_tables`).

Who asked and hung up has the jobs of its question cancelled. Nothing here writes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sparkstore.cli.query_result import PrintedAnswer
from sparkstore.cli.sql_server.exchange import STOP, Question, as_message, receive, send
from sparkstore.cli.sql_server.place import ServerPlace, is_this_user, server_place
from sparkstore.cli.sql_server.seen_tables import SeenTables
from sparkstore.errors import InvalidRequest, Locked, StoreError
from sparkstore.session_effort import EFFORTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

IDLE_S = 900.0
"""How long a server waits for the next question, in seconds."""
IDLE_VARIABLE = "SPARKSTORE_SERVER_IDLE_S"
_END_S = 30.0


def serve(effort_name: str, idle_s: float | None, on_ready: Callable[[], None]) -> None:
    """Answer questions until there was none for a while, or somebody ends the server.

    Args:
        effort_name: Name of an effort in `sparkstore.session_effort`.
        idle_s: How long to wait for a question, in seconds; None: for ever.
        on_ready: Called when Spark is there.

    Raises:
        InvalidRequest: This user can have no server; there is no Java.
        Locked: There is a server for this already.
        Unavailable: Spark did not start.
    """
    place = server_place(effort_name)
    if place is None:
        message = "there is no folder of this user alone for an SQL server: set XDG_CACHE_HOME"
        raise InvalidRequest(message)
    with place.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as reason:
            message = "an SQL server is there already: `sparkstore sql-server --stop` ends it"
            raise Locked(message) from reason
        if place.log.exists():
            os.truncate(place.log, 0)
        with _listening(place) as listener:  # before Spark starts: who asks can wait in line
            from sparkstore.cli.sql import spark_for  # it loads PySpark

            spark = spark_for(EFFORTS[effort_name], java_options="-XX:+ExitOnOutOfMemoryError")
            on_ready()
            try:
                _SqlServer(spark, listener, idle_s).run()
            finally:
                with suppress(Exception):  # its JVM may be gone
                    spark.stop()


@contextmanager
def _listening(place: ServerPlace) -> Iterator[socket.socket]:
    """Listen at a place whose lock is held: a socket that is there is of a server that is gone."""
    place.socket.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.socket))
        listener.listen()
        try:
            yield listener
        finally:
            place.socket.unlink(missing_ok=True)


class _SqlServer:
    """Takes questions from one listener."""

    def __init__(self, spark: SparkSession, listener: socket.socket, idle_s: float | None) -> None:
        self._spark, self._listener, self._idle_s = spark, listener, idle_s
        self._seen = SeenTables()
        self._threads: set[threading.Thread] = set()
        self._last = time.monotonic()
        self._ended, self._end = socket.socketpair()

    def run(self) -> None:
        """Answer until the end; what is asked then is answered still."""
        while self._waits():
            peer, _ = self._listener.accept()
            thread = threading.Thread(target=self._answer_one, args=(peer,), daemon=True)
            self._threads.add(thread)
            thread.start()
        for thread in list(self._threads):
            thread.join(_END_S)

    def _waits(self) -> bool:
        """Wait for somebody who asks; False if it is time to end."""
        while True:
            left = None
            if self._idle_s is not None:
                left = max(0.0, self._last + self._idle_s - time.monotonic())
            ready, _, _ = select.select([self._listener, self._ended], [], [], left)
            if ready:
                return self._ended not in ready
            if self._threads:  # a long question is no idleness
                self._last = time.monotonic()
            elif not left:
                return False

    def _answer_one(self, peer: socket.socket) -> None:
        try:
            with peer, suppress(OSError, EOFError):
                if is_this_user(peer):
                    self._reply(peer, receive(peer))
        except Exception:  # noqa: BLE001 - who asked sees the connection end, and asks Spark itself
            _log.exception("no answer; the server ends")
            self._end.send(b"\0")
        finally:
            self._last = time.monotonic()
            self._threads.discard(threading.current_thread())

    def _reply(self, peer: socket.socket, asked: dict[str, Any]) -> None:
        if asked == STOP:
            self._end.send(b"\0")
            send(peer, {})
            return
        with self._cancelled_with(peer):
            try:
                answer: PrintedAnswer | StoreError = self._answer(Question(**asked))
            except StoreError as reason:
                if self._spark.sparkContext._jsc.sc().isStopped():  # noqa: SLF001
                    raise RuntimeError("Spark has ended") from reason
                answer = reason
            send(peer, as_message(answer))

    @contextmanager
    def _cancelled_with(self, peer: socket.socket) -> Iterator[None]:
        """Cancel the jobs of this thread when the other end hangs up."""
        context, group = self._spark.sparkContext, str(uuid4())
        context.setJobGroup(group, "sparkstore sql", interruptOnCancel=True)

        def watch() -> None:
            with suppress(OSError):
                if not peer.recv(1):  # also what it starts after this moment
                    context._jsc.sc().cancelJobGroupAndFutureJobs(group)  # noqa: SLF001

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RD)
            watcher.join()

    def _answer(self, question: Question) -> PrintedAnswer:
        from sparkstore.cli.sql import answer_printed
        from sparkstore.tables.root import open_root

        root = open_root(Path(question.root))
        if self._seen.is_rewritten(root):
            jvm = self._spark._jvm  # noqa: SLF001
            assert jvm is not None
            jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        return answer_printed(self._spark.newSession(), root, question)


def main(words: list[str]) -> int:
    """Serve as `client` starts it: nobody's child, without a terminal, until it is idle."""
    if os.fork():
        return 0
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        serve(words[0], float(os.environ.get(IDLE_VARIABLE, IDLE_S)), lambda: None)
    except Locked:  # another command was faster
        return 0
    except StoreError as reason:  # who asked finds out the same, and says it
        _log.error("%s", reason)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
