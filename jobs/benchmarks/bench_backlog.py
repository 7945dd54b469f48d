"""Broker-J starts with a deep queue, then empties it: part of `make bench-brokerj`.

    python -m jobs.benchmarks.bench_backlog [--n N] [--rounds N] [--stores NAME ...]
        [--wal-file-bytes N]

For each store: a broker fills one queue with `--n` messages of 256 bytes and is stopped; then it is
started again (its own recovery, synchronous; for ours the service is started again with it, and the
broker's time includes waiting for that). In another folder as many messages go onto a queue and off
it again, 100,000 at a time, and what is on disk is counted: as the stopped broker leaves it, and
after the store's own housekeeping. That is, for ours, two compactions with no history kept and no
grace for readers, as a schedule would run them by and by; for BDB, its `cleanLog` and `checkpoint`.
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

from jobs.benchmarks.bench_brokerj import MODULE, Bench
from jobs.benchmarks.machine import BUILD, describe, median

STORES = ("sparkstore", "BDB")
_COMPACT = """
import sys
from sparkstore.compaction import compact
from sparkstore.compaction.plans.compact_plan import Upkeep
from sparkstore.session import local_session
upkeep = Upkeep(history_days=0.0, reader_grace_s=0.0)
compact.run(local_session("bench"), sys.argv[1], upkeep=upkeep)
"""
_SETTINGS = "[store]\nreader_grace_s = 0.0\nsegment_commits = 20\nwal_file_bytes = {}\n"


class Told(NamedTuple):
    """Of one store.

    Attributes:
        filled_per_second: Messages a second while the queue filled.
        start_s: Seconds to start with the full queue.
        churned_per_second: Messages a second that went onto a queue and off it again.
        left_mb: MB on disk after that, as the stopped broker leaves it.
        tidied_mb: The same after the store's own housekeeping.
        wal_mb: Of that, files of a write-ahead log that are reused.
    """

    filled_per_second: float
    start_s: float
    churned_per_second: float
    left_mb: float
    tidied_mb: float
    wal_mb: float


class Backlog(Bench):
    """The harness of `bench_brokerj`, with our own driver of a deep queue."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments)
        self._settings = _SETTINGS.format(arguments.wal_file_bytes)
        self.add_to_path(MODULE / "target" / "test-classes")

    def run(self, name: str, folder: Path) -> Told:
        """Fill and start; in another folder churn and tidy."""
        deep, churned = folder / "deep", folder / "churned"
        for made in (deep, churned):
            made.mkdir()
            (made / "store.toml").write_text(self._settings)
        _, filled_ms = self._do("fill", name, deep)
        waiting, start_ms = self._do("open", name, deep)
        if waiting != self._n:
            sys.exit(f"{name}: {waiting} of {self._n} messages are there after a restart")
        sys.stderr.write(f"{name}: filled in {filled_ms} ms, started in {start_ms} ms\n")
        _, churned_ms = self._do("churn", name, churned)
        left = _size_mb(name, churned)
        sys.stderr.write(f"{name}: churned in {churned_ms} ms, left {left:.1f} MB\n")
        self._tidy(name, churned)
        wal = sum(file.stat().st_size for file in churned.glob("root/wal/*")) / 1e6
        return Told(
            *(self._n / filled_ms * 1e3, start_ms / 1e3, self._n / churned_ms * 1e3),
            *(left, _size_mb(name, churned), wal),
        )

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
            self._do("clean", name, folder)
            return
        for _ in range(2):
            with self._node(name, folder):
                words = [sys.executable, "-W", "ignore", "-c", _COMPACT, str(folder / "root")]
                subprocess.run(words, check=True, capture_output=True)


def _size_mb(name: str, folder: Path) -> float:
    kept = folder / ("root" if name == "sparkstore" else "work")
    return sum(file.stat().st_size for file in kept.rglob("*") if file.is_file()) / 1e6


def main() -> None:
    """Run the rounds and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--stores", nargs="*", default=STORES)
    parser.add_argument("--wal-file-bytes", type=int, default=32 << 20)
    parser.set_defaults(size=256)
    arguments = parser.parse_args()
    bench = Backlog(arguments)
    sys.stderr.write(describe() + "\n")
    rounds: dict[str, list[Told]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for name in arguments.stores:
            with tempfile.TemporaryDirectory(dir=BUILD) as folder:
                figures = bench.run(name, Path(folder).absolute())
            rounds[name].append(figures)
            sys.stderr.write(f"{name}: {figures}\n")
    medians = {
        name: Told(*(median(values) for values in zip(*figures, strict=True)))._asdict()
        for name, figures in rounds.items()
    }
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
