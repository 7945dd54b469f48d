"""Every command that a document or a `--help` shows runs as it is shown, in a process.

All of them share one root that is served, and the process of each is forked from one that has
imported what it needs. Only names of places,
ports, times and numbers of what is there are replaced.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.support.documented_commands import shown_commands
from tests.support.documents import DOCUMENTS, blocks
from tests.support.system.forked import ForkedProcess, piped
from tests.support.system.processes import BrokerProcess

pytestmark = pytest.mark.system

NOT_RUN = {
    r"s3://": "needs a bucket; tests/spark/test_bucket_jobs.py has one",
    r" --where ": "Spark finds the messages; tests/spark/test_bulk.py asks it",
    r"^sparkstore (compact|reconcile|replicate|current|promote) ": "a job of Spark, some 10 s",
    r" --engine spark ": "tests/spark/test_cli_sql.py asks Spark",
    r"serve \S+ --config sparkstore.toml --token-file ": "one of a pair; test_failover.py has two",
    r"serve /mnt/other/": "needs a promoted replica",
    r"https://broker.example": "another machine",
    r"curl http://127.0.0.1:9672/metrics, /readyz": "names two addresses, and is no command",
    r"failover switch": "needs a pair in step; test_switch.py has one",
    r"/events$": "never ends; tests/system/test_http_events.py reads it",
    r"--member host:5672|--member (second|b)$": "needs a second broker; test_members.py",
    r"transactions ROOT --rollback ": "needs a branch; tests/contract/test_two_phase.py has one",
    r"passwd users.json ann( --roles shop(,\S+)?.*| --roles monitor,shop)?$": "asks on a terminal",
    r"passwd users.json (olaf|ada) ": "asks on a terminal",
    r"import ROOT broker.xml": "needs a file of Artemis; tests/unit/sparkstore/operations has some",
    r"^sparkstore serve ROOT --listen 0.0.0.0|^sparkstore serve /var/lib/orders --listen 0.0.0.0": (
        "needs certificates; tests/system/test_amqp_security.py makes some"
    ),
}
"""Patterns of the lines that no test here runs, each with its reason."""
BEFORE = {
    "sparkstore queue create ROOT orders": "sparkstore queue delete ROOT orders --force",
    "sparkstore exchange create ROOT news": "sparkstore exchange delete ROOT news --force",
    "curl -X PUT ": "sparkstore queue delete ROOT orders --force",
    "sparkstore definitions import ROOT": "sparkstore definitions export ROOT > definitions.json",
}
"""What a line needs that another example has left otherwise, by its beginning."""
JUDGES = {"check": {0, 1, 2}, "doctor": {0, 1}, "failover": {0, 1}}
"""Commands whose exit code is a judgement."""


class Answer(NamedTuple):
    """What a process came to."""

    code: int
    out: str
    err: str


def runnable() -> list[str]:
    return [line for line in shown_commands() if not any(re.search(each, line) for each in NOT_RUN)]


def run(*words: str) -> Answer:
    """Run a command in a process of its own."""
    (out, out_end), (err, err_end) = piped(), piped()
    process = ForkedProcess("sparkstore.__main__", *words, stdout=out_end, stderr=err_end)
    os.close(out_end)
    os.close(err_end)
    with out, err:
        told, complained = out.read(), err.read()
    return Answer(process.wait(60), told, complained)


class Place:
    """A served root, and what a line calls by other names there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "queues"
        for name in ("mnt/backup", "zfunc", "fish", "witness"):
            (folder / name).mkdir(parents=True)
        (folder / "mended.json").write_text('{"price": 3}')
        (folder / "secret").write_text("correct horse battery\n")
        settings = folder / "store.toml"
        settings.write_text(f'[store]\nwitness = "{folder / "witness"}"\n')
        more = [
            f"--queue={name}" for name in ("orders", "dead", "late", "repair", "ordres", "audit")
        ]
        self.broker = BrokerProcess(
            f"--config={settings}",
            "--listen=127.0.0.1:0",
            "--http=127.0.0.1:0",
            str(self.root),
            *more,
        )
        other = BrokerProcess("--listen", "127.0.0.1:0", str(folder / "other"))
        assert other.terminate() == 0
        self.connections = [BlockingConnection(self.broker.url)]
        sender = self.connections[0].create_sender("orders")
        for number in range(24):
            properties = {"land": "eu", "carrier": "UA", "region": "EU", "attempt": number}
            body = f'{{"dep_delay": {number}, "number": {number}}}'
            sender.send(Message(body=body, subject="eggs", properties=properties, durable=True))
        assert run("purge", str(self.root), "orders", "--id", "1").code == 0
        self.http = re.findall(r" http=(\S+)", self.broker.ready_line)[0]
        self.message_id = 24

    def end(self) -> None:
        """Stop the broker."""
        assert self.broker.terminate() == 0

    def words(self, line: str) -> str:
        """Return a line as it is for this place."""
        if " resubmit " in line:
            self.message_id -= 1
            line = line.replace(" 17 ", f" {self.message_id} ")
        now = datetime.now(UTC).isoformat(sep=" ", timespec="milliseconds")
        line = re.sub(r"2026-11-22(T| )1\d:00(\+01:00)?", now.replace(" ", "T"), line)
        for old, new in {
            "/var/lib/sparkstore/queues": self.root,
            "/var/lib/queues-": self.folder / "restored-",
            "/var/lib/queues": self.root,
            "/var/lib/orders": self.root,
            "/var/lib/node_exporter": self.folder,
            "/mnt": self.folder / "mnt",
            "~/.zfunc": self.folder / "zfunc",
            "~/.config/fish/completions": self.folder / "fish",
            "http://127.0.0.1:8161": self.http,
            "position=812": "position=1",
            "./shop": self.root,
        }.items():
            line = line.replace(old, str(new))
        line = re.sub(r"\bROOT\b", str(self.root), line)
        line = re.sub(r"\bOTHER\b", str(self.folder / "other"), line)
        if "7f3a91c2" in line:
            line = line.replace("7f3a91c2", self._operation())
        if "--close 7" in line:
            line = line.replace("--close 7", f"--close {self._connection()}")
        return line

    def at_rest(self, line: str) -> str:
        """Return a line that serves a root, as it is for one that nobody serves."""
        line = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", line)
        line = re.sub(r"/run/\w+", str(self.folder), line)
        line = line.replace("/var/lib/wiring", str(self.folder / "wiring"))
        return re.sub(
            r"/var/lib/(queues|orders)|\bROOT\b|\./shop", str(self.folder / "other"), line
        )

    def _operation(self) -> str:
        rows = [
            json.loads(row) for row in run("operations", "--json", str(self.root)).out.splitlines()
        ]
        return str(rows[-1]["operation"])

    def _connection(self) -> str:
        self.connections.append(BlockingConnection(self.broker.url))
        rows = run("connections", "--json", str(self.root)).out.splitlines()
        return str(json.loads(rows[-1])["connection"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("documented")
    before = Path.cwd()
    os.chdir(folder)
    there = Place(folder)
    yield there
    there.end()
    os.chdir(before)


def typed(place: Place, line: str) -> Answer:
    """Run a line as a shell does."""
    words = shlex.split(place.words(line), comments=True)
    if "<" not in line and ">" not in line:
        return run(*words[1:])
    command = f"{shlex.quote(sys.executable)} -m {place.words(line)}"
    shell = ["sh", "-c", command]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=60, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


def prepare(place: Place, line: str) -> None:
    """Run what a line needs before it."""
    for beginning, needed in BEFORE.items():
        if line.startswith(beginning):
            typed(place, needed)


def test_every_command_runs(place: Place) -> None:
    lines = [line for line in runnable() if not re.match("sparkstore serve|curl", line)]
    assert len(lines) > 60
    wrong: dict[str, Answer] = {}
    for line in lines:
        prepare(place, line)
        answer = typed(place, line)
        if answer.code not in JUDGES.get(line.split()[1], {0}) or "Traceback" in answer.err:
            wrong[line] = answer
    assert not wrong, "\n".join(f"{line}\n    {answer}" for line, answer in wrong.items())


def test_every_broker_starts_and_ends(place: Place) -> None:
    lines = [line for line in runnable() if line.startswith("sparkstore serve")]
    assert len(lines) > 10
    for shown in lines:
        words = shlex.split(place.at_rest(shown))[2:]
        is_silent = {"--listen", "--no-amqp"} & {*words}
        broker = BrokerProcess(*words, *([] if is_silent else ["--listen", "127.0.0.1:0"]))
        assert broker.ready_line.startswith("READY "), shown
        assert broker.terminate() == 0, shown


def test_every_request_of_http_is_answered(place: Place) -> None:
    lines = [line for line in runnable() if line.startswith("curl")]
    assert len(lines) == 6
    for line in lines:
        prepare(place, line)
        words = shlex.split(place.words(line))[1:]
        options = [*pairwise(words)]
        headers = [value.partition(": ")[::2] for name, value in options if name == "-H"]
        request = urllib.request.Request(
            next(word for word in words if word.startswith("http://")),
            method=dict(options).get("-X", "GET"),
            headers=dict(headers),
            data=dict(options).get("-d", "").encode() or None,
        )
        with closing(urllib.request.urlopen(request, timeout=30)) as answer:
            assert answer.status in {200, 201, 204}, line
            content = answer.read()
            assert "csv" in line or json.loads(content), line


def test_every_query_is_answered_by_the_command(place: Place) -> None:
    """By DuckDB; tests/spark/test_documents_sql.py asks Spark the same."""
    queries = [query for page in DOCUMENTS for query in blocks(page.read_text(), "sql")]
    assert len(queries) > 10
    wrong = {query: run("sql", str(place.root), query) for query in queries}
    assert {query: answer.err for query, answer in wrong.items() if answer.code} == {}


def test_each_line_that_is_not_run_is_there_and_only_it() -> None:
    lines = shown_commands()
    assert [each for each in NOT_RUN if not any(re.search(each, line) for line in lines)] == []
    assert [each for each in BEFORE if not any(line.startswith(each) for line in lines)] == []
