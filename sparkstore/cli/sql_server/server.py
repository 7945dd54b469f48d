"""`python -m sparkstore.cli.sql_server.server EFFORT`: one Spark session for many questions.

Each question has a thread and a session of its own on the one Spark: views of another root, or a
setting, are never seen by it. Its views are made anew, and Delta looks for new versions of each
table at each query. So an answer is never older than its question. What Delta remembers of a table
is forgotten if its past was written anew (`seen_tables`).

So many questions are answered at once, and so many more wait in line; each is a thread. Whoever
comes then is told to come again. From its first moment a server tells everybody who asks that it is
alive (`BEAT`). Who asked and hung up has the jobs of its question cancelled. Nothing here writes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait as wait_for  # `select` ends at 1,024 open files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sparkstore.cli.query_result import PrintedAnswer
from sparkstore.cli.sql_server.exchange import (
    BEAT,
    BEAT_S,
    STOP,
    Question,
    as_message,
    receive,
    send,
)
from sparkstore.cli.sql_server.place import ServerPlace, is_this_user, server_place
from sparkstore.cli.sql_server.seen_tables import SeenTables
from sparkstore.errors import InvalidRequest, Locked, StoreError, Unavailable
from sparkstore.session_effort import EFFORTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

IDLE_S = 900.0
"""How long a server waits for the next question, in seconds."""
IDLE_VARIABLE = "SPARKSTORE_SERVER_IDLE_S"
_END_S = 30.0
_LOOK_S = 86_400.0
AT_ONCE, IN_LINE = 8, 56
"""Questions that have a session of Spark, and questions that wait for one."""


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

            server = SqlServer(listener, idle_s)
            answering = threading.Thread(target=server.run, daemon=True)
            answering.start()
            spark = spark_for(EFFORTS[effort_name], java_options="-XX:+ExitOnOutOfMemoryError")
            server.begin(spark)
            on_ready()
            try:
                answering.join()
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


class SqlServer:
    """Takes questions from one listener."""

    def __init__(self, listener: socket.socket, idle_s: float | None) -> None:
        self._listener, self._idle_s = listener, idle_s
        self._spark: SparkSession | None = None
        self._has_spark = threading.Event()
        self._turns = threading.Semaphore(AT_ONCE)
        self._seen = SeenTables()
        self._threads: set[threading.Thread] = set()
        self._last = time.monotonic()
        self._ended, self._end = socket.socketpair()

    def begin(self, spark: SparkSession) -> None:
        """Begin to answer: Spark is there."""
        self._spark = spark
        self._last = time.monotonic()
        self._has_spark.set()

    def run(self) -> None:
        """Answer until the end; what is asked then is answered still."""
        while self._waits():
            peer, _ = self._listener.accept()
            is_full = len(self._threads) >= AT_ONCE + IN_LINE
            thread = threading.Thread(target=self._answer_one, args=(peer, is_full), daemon=True)
            self._threads.add(thread)
            thread.start()
        for thread in list(self._threads):
            thread.join(_END_S)

    def _waits(self) -> bool:
        """Wait for somebody who asks; False if it is time to end."""
        while True:
            left = None
            if self._idle_s is not None:
                left = min(max(0.0, self._last + self._idle_s - time.monotonic()), _LOOK_S)
            ready = wait_for([self._listener, self._ended], left)
            if ready:
                return self._ended not in ready
            if self._threads or not self._has_spark.is_set():  # neither is idleness
                self._last = time.monotonic()
            elif not left:
                return False

    def _answer_one(self, peer: socket.socket, is_full: bool) -> None:  # noqa: FBT001
        try:
            with peer, suppress(OSError, EOFError):
                if is_this_user(peer):
                    self._reply(peer, receive(peer), is_full=is_full)
        except Exception:  # noqa: BLE001 - who asked sees the connection end, and asks Spark itself
            _log.exception("no answer; the server ends")
            self._end.send(b"\0")
        finally:
            self._last = time.monotonic()
            self._threads.discard(threading.current_thread())

    def _reply(self, peer: socket.socket, asked: dict[str, Any], *, is_full: bool) -> None:
        if asked == STOP:
            self._end.send(b"\0")
            send(peer, {})
            return
        if is_full:
            message = f"the SQL server has {AT_ONCE + IN_LINE} questions already: ask again later"
            send(peer, as_message(Unavailable(message)))
            return
        group = str(uuid4())
        with self._watched(peer, group) as is_gone:
            self._has_spark.wait()
            with self._turns:
                if is_gone():
                    return
                answer = self._answered(Question(**asked), group)
        send(peer, as_message(answer))

    def _answered(self, question: Question, group: str) -> PrintedAnswer | StoreError:
        spark = self._spark
        assert spark is not None
        spark.sparkContext.setJobGroup(group, "sparkstore sql", interruptOnCancel=True)
        try:
            return self._answer(spark, question)
        except StoreError as reason:
            if spark.sparkContext._jsc.sc().isStopped():  # noqa: SLF001
                raise RuntimeError("Spark has ended") from reason
            return reason

    @contextmanager
    def _watched(self, peer: socket.socket, group: str) -> Iterator[Callable[[], bool]]:
        """Tell the other end that we are alive, and cancel a group of jobs when it hangs up.

        Yields:
            What tells whether it has hung up.
        """
        gone, answered = threading.Event(), threading.Event()

        def watch() -> None:
            with suppress(OSError):
                while not wait_for([peer], BEAT_S):
                    send(peer, BEAT)
            if not answered.is_set():  # it asks once, so what there is to read is the end
                gone.set()
                self._cancel(group)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield gone.is_set
        finally:
            answered.set()
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RD)
            watcher.join()

    def _cancel(self, group: str) -> None:
        """Cancel the jobs of a question, also those that it starts after this moment."""
        if self._spark is not None:
            self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)  # noqa: SLF001

    def _answer(self, spark: SparkSession, question: Question) -> PrintedAnswer:
        from sparkstore.cli.sql import answer_printed
        from sparkstore.tables.root import open_root

        root = open_root(Path(question.root))
        if self._seen.is_rewritten(root):
            jvm = spark._jvm  # noqa: SLF001
            assert jvm is not None
            jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        return answer_printed(spark.newSession(), root, question)


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
