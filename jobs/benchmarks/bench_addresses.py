"""What a name costs: python -m jobs.benchmarks.bench_addresses [--queues N] [--names N].

    dict          a million plain look-ups of the same names in the same order
    full          a million resolves of `address::queue`
    short         a million resolves of short names that one queue has
    ambiguous     the same, but one name in twenty is a queue's on two addresses
    unknown       names of no queue, half of them full: for a look, no limit

Each is run `--rounds` times in turn with the plain look-up beside it; medians count. Lines on
standard error; JSON on standard output. Exit code 1 if any but `unknown` costs more than 3 × the
look-up.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from itertools import repeat

from broker_shim.addressing.bindings import AddressManager
from jobs.benchmarks.machine import describe, median

LIMIT = 3.0


def nanoseconds(call: Callable[[str], object], names: Sequence[str]) -> float:
    """What one call costs, in a plain loop as a broker would make it."""
    gc.collect()
    started = time.perf_counter()
    for name in names:
        call(name)
    return (time.perf_counter() - started) / len(names) * 1e9


def names_of(queues: int, count: int) -> dict[str, list[str]]:
    """By kind, `count` names at random among those of as many queues."""
    chosen = random.Random(7).choices(range(queues), k=count)
    short = [f"queue-{number}" for number in chosen]
    return {
        "full": [f"address.{number % 1000}::queue-{number}" for number in chosen],
        "short": short,
        "ambiguous": [
            name if number % 20 else f"twin-{number % 100}"
            for number, name in zip(chosen, short, strict=True)
        ],
        "unknown": [f"none-{n}" if n % 2 else f"address.1::none-{n}" for n in chosen],
    }


def manager_of(queues: int) -> AddressManager:
    """As many queues on a thousand addresses, and a hundred names that two addresses have."""
    manager = AddressManager()
    for number in range(queues):
        manager.add(f"address.{number % 1000}::queue-{number}")
    for address in ("left", "right"):
        for number in range(100):
            manager.add(f"{address}::twin-{number}")
    return manager


def measured(manager: AddressManager, names: Sequence[str], rounds: int) -> tuple[float, float]:
    """Nanoseconds of a plain look-up, and of a resolve: medians of rounds in turn."""
    plain = {name: manager.resolve(name) for name in names}
    both = [
        (nanoseconds(plain.get, names), nanoseconds(manager.resolve, names))
        for _ in repeat(None, rounds)
    ]
    return median([pair[0] for pair in both]), median([pair[1] for pair in both])


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sys.stderr.write(describe() + "\n")
    manager = manager_of(arguments.queues)
    figures: dict[str, dict[str, float]] = {}
    for kind, names in names_of(arguments.queues, arguments.names).items():
        plain_ns, resolve_ns = measured(manager, names, arguments.rounds)
        ratio = resolve_ns / plain_ns
        figures[kind] = {"dict_ns": plain_ns, "resolve_ns": resolve_ns, "ratio": ratio}
        sys.stderr.write(
            f"{kind:9} dict {plain_ns:6.0f} ns  resolve {resolve_ns:6.0f} ns  {ratio:5.2f} x\n"
        )
    sys.stdout.write(json.dumps({"addresses": figures}) + "\n")
    limited = figures.keys() - {"unknown"}
    too_slow = sorted(kind for kind in limited if figures[kind]["ratio"] > LIMIT)
    if too_slow:
        sys.stderr.write(f"{', '.join(too_slow)}: more than {LIMIT} x a plain look-up\n")
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
