"""Broker-J starts with a deep queue, then empties it: part of `make bench-brokerj`.

    python -m tests.benchmarks.bench_backlog [--n N] [--rounds N]

For each store: a broker fills one queue with `--n` messages of 256 bytes and is stopped; then it is
started again (its own recovery, synchronous; for ours the service is started again with it, and the
broker's time includes waiting for that); then the queue is emptied, the broker stopped, and what is
left on disk counted. Ours is compacted first with no history kept and no grace for readers, as a
schedule would by and by; BDB is opened once more, to clean up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.bench_brokerj import MODULE, Bench
from tests.benchmarks.machine import BUILD, describe, median

STORES = ("sparkstore", "BDB")
_COMPACT = """
import sys
from sparkstore import compact
from sparkstore.compact_plan import Upkeep
from sparkstore.session import local_session
upkeep = Upkeep(history_days=0.0, reader_grace_s=0.0)
compact.run(local_session("bench"), sys.argv[1], upkeep=upkeep)
"""
_NO_GRACE = "[store]\nreader_grace_s = 0.0\nsegment_commits = 20\n"


class Told(NamedTuple):
    """Of one store: messages a second while it filled; seconds to start; MB on disk at the end."""

    filled_per_second: float
    start_s: float
    left_mb: float


class Backlog(Bench):
    """The harness of `bench_brokerj`, with our own driver of a deep queue."""

    def run(self, name: str, folder: Path) -> Told:
        """Fill, start, drain."""
        (folder / "store.toml").write_text(_NO_GRACE)
        _, filled_ms = self._do("fill", name, folder)
        found, start_ms = self._do("open", name, folder)
        if found != self._n:
            sys.exit(f"{name}: {found} of {self._n} messages are there after a restart")
        sys.stderr.write(f"{name}: filled in {filled_ms} ms, started in {start_ms} ms\n")
        self._do("drain", name, folder)
        self._tidy(name, folder)
        kept = folder / ("root" if name == "sparkstore" else "work")
        size = sum(file.stat().st_size for file in kept.rglob("*") if file.is_file())
        return Told(self._n / filled_ms * 1e3, start_ms / 1e3, size / 1e6)

    def _do(self, what: str, name: str, folder: Path) -> tuple[int, int]:
        with self._node(name, folder) as node:
            return self._drive(what, node, folder)

    def _drive(
        self, what: str, node: tuple[tuple[str, ...], str, str], folder: Path
    ) -> tuple[int, int]:
        options, kind, node_type = node
        words = [what, kind, node_type, str(folder / "work"), str(self._n)]
        printed = self._java(options, "sparkstore.brokerj.bench.Backlog", words)
        line = next(line for line in printed.splitlines() if line.startswith(what))
        _, count, milliseconds = line.split()
        return int(count), int(milliseconds)

    def _tidy(self, name: str, folder: Path) -> None:
        """Two compactions beside the running service, whose trimmer works; BDB's own cleaner."""
        if name != "sparkstore":
            self._do("open", name, folder)
            return
        for _ in range(2):
            with self._node(name, folder):
                words = [sys.executable, "-W", "ignore", "-c", _COMPACT, str(folder / "root")]
                subprocess.run(words, check=True, capture_output=True)


def main() -> None:
    """Run the rounds and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.set_defaults(size=256)
    arguments = parser.parse_args()
    bench = Backlog(arguments)
    bench.add_to_path(MODULE / "target" / "test-classes")
    sys.stderr.write(describe() + "\n")
    rounds: dict[str, list[Told]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for name in STORES:
            with tempfile.TemporaryDirectory(dir=BUILD) as folder:
                told = bench.run(name, Path(folder).absolute())
            rounds[name].append(told)
            sys.stderr.write(f"{name}: {told}\n")
    found = {
        name: Told(*(median(values) for values in zip(*told, strict=True)))._asdict()
        for name, told in rounds.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
