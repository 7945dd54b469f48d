"""The server of `sparkstore sql` answers as a Spark of one's own, whatever happens to it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.cli.query_result import PrintedAnswer
from sparkstore.cli.sql import answer_printed
from sparkstore.cli.sql_server import client, place, server
from sparkstore.cli.sql_server.exchange import Question, send
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.tables.root import open_root
from tests.support.stores.stores import DELTA_CONFIG, done

pytestmark = pytest.mark.slow
LITTLE = "little"
END_S = 20.0
"""For a process to end: less than a server waits for questions under way."""
ENDLESS = "SELECT count(*) FROM range(100000000) AS a CROSS JOIN range(100000000) AS b"


def fill(path: Path, count: int) -> None:
    """Put so many messages on `q`, and commit them."""
    with closing(DeltaMessageStore(path, DELTA_CONFIG)) as store:
        done(store.create, Queue("q"))
        for _ in range(count):
            done(store.enqueue, store.message(MessageHeader(), b"body"), "q")
        done(store.flush)


@pytest.fixture(scope="module")
def folder(sql_servers: Path) -> Path:
    """A user's cache with a root in it."""
    fill(sql_servers / "root", 3)
    return sql_servers


def asked(folder: Path, statement: str, *, limit: int = 0, as_json: bool = False) -> Question:
    return Question(str(folder / "root"), statement, limit, None, as_json)


def by_server(question: Question) -> PrintedAnswer:
    answered = client.ask(LITTLE, question)
    assert answered is not None, servers()
    return answered


def servers() -> list[int]:
    """The processes that serve in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes()
            cache = f"XDG_CACHE_HOME={os.environ['XDG_CACHE_HOME']}".encode()
            if server.__name__.encode() in words and cache in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def listening(at: place.ServerPlace) -> int | None:
    """Return the process that listens there, which its launcher has the command line of."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(at.socket))
        except OSError:
            return None
        (process, _, _) = struct.unpack(
            "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
    return int(process)


def wait_for_end(process: int) -> None:
    """Wait until a process has ended, which is no child of this one."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process)
        try:
            ended, _, _ = select.select([descriptor], [], [], END_S)
        finally:
            os.close(descriptor)
        assert ended, f"process {process} goes on"


def test_two_who_ask_at_once_start_one_server(folder: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        question = asked(folder, "SELECT queue, depth FROM queues", as_json=True)
        answers = list(pool.map(by_server, [question, question]))
    assert [list(answer.lines) for answer in answers] == [['{"queue": "q", "depth": 3}']] * 2
    assert len(servers()) == 1
    files = sorted((folder / "sparkstore" / "sql").iterdir())
    assert [file.suffix for file in files] == [".lock", ".log", ".socket"]


@pytest.mark.parametrize(
    ("statement", "as_json"),
    [
        ("SELECT message_id, queue, body, properties FROM queue_messages ORDER BY 1", False),
        ("SELECT 1 AS a, 2 AS a, double('NaN') AS n, timestamp'2026-01-02 03:04:05Z' AS t", True),
        ("SELECT depth FROM queues WHERE queue = 'none'", False),
        ("SELECT * FROM misspelt", False),
        ("SELECT reflect('java.lang.System', 'exit', 1)", False),
        ("SELECT * FROM delta.`/etc`", True),
        ("SELECT raise_error('on purpose')", True),
    ],
)
def test_an_answer_is_the_same_as_without_a_server(
    spark: SparkSession, folder: Path, statement: str, as_json: bool
) -> None:
    question = asked(folder, statement, limit=2, as_json=as_json)

    def told(ask: PrintedAnswer | StoreError) -> object:
        if isinstance(ask, StoreError):
            return type(ask), str(ask)
        return list(ask.lines), ask.is_cut

    def answer() -> PrintedAnswer | StoreError:
        try:
            return answer_printed(spark, open_root(folder / "root"), question)
        except StoreError as reason:
            return reason

    def server_answer() -> PrintedAnswer | StoreError:
        try:
            return by_server(question)
        except StoreError as reason:
            return reason

    assert told(server_answer()) == told(answer())


def test_a_question_sees_neither_views_nor_settings_of_another(folder: Path) -> None:
    with pytest.raises(InvalidRequest):
        by_server(asked(folder, "SET spark.sql.ansi.enabled = false"))
    other = Question(str(folder / "other"), "SELECT 1 FROM queues", 0, None, as_json=True)
    with pytest.raises(InvalidRequest, match="no root"):
        by_server(other)


def test_an_answer_is_never_older_than_its_question(folder: Path, tmp_path: Path) -> None:
    question = asked(folder, "SELECT depth FROM queues", as_json=True)
    fill(folder / "root", 2)
    assert list(by_server(question).lines) == ['{"depth": 5}']
    fill(tmp_path / "new", 1)  # with the same versions, of other files
    fill(tmp_path / "new", 1)
    shutil.rmtree(folder / "root")
    shutil.copytree(tmp_path / "new", folder / "root")
    assert list(by_server(question).lines) == ['{"depth": 2}']


def test_a_server_that_is_stopped_is_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = asked(folder, "SELECT depth FROM queues", as_json=True)
    (process,) = servers()
    monkeypatch.setattr(client, "SILENT_S", 0.5)
    os.kill(process, signal.SIGSTOP)
    try:
        assert client.ask(LITTLE, question) is None
    finally:
        os.kill(process, signal.SIGCONT)
    assert f"says nothing, Spark starts here: kill -9 {process}" in capsys.readouterr().err


def test_who_hangs_up_has_the_question_cancelled(folder: Path) -> None:
    at = place.server_place(LITTLE)
    assert at is not None
    (process,) = servers()
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(at.socket))
        send(peer, asked(folder, ENDLESS)._asdict())
    assert client.stop_servers() == 1
    wait_for_end(process)


def test_a_server_that_is_killed_is_followed_by_one_that_ends_when_it_is_idle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = asked(folder, "SELECT depth FROM queues", as_json=True)
    at = place.server_place(LITTLE)
    assert at is not None
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.ask, LITTLE, asked(folder, ENDLESS))
        try:
            while (process := listening(at)) is None:
                assert not waits.done()
            os.kill(process, signal.SIGKILL)
            assert waits.result(END_S) is None
        finally:  # an endless question has the pool wait for ever
            for other in servers():
                os.kill(other, signal.SIGKILL)
    assert at.socket.exists()
    monkeypatch.setenv(server.IDLE_VARIABLE, "0.5")
    assert list(by_server(question).lines) == ['{"depth": 2}']
    for process in servers():
        wait_for_end(process)
    assert not at.socket.exists()
