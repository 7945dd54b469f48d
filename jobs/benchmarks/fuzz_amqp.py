"""Feed connections with bytes that are nearly AMQP 1.0, and nearly 0-10, for a time.

    python -m jobs.benchmarks.fuzz_amqp [SECONDS] [SEED]

The same seed makes the same inputs. Ends with exit code 1 and the input that broke something.
"""

from __future__ import annotations

import gc
import resource
import sys
import time

from tests.support.amqp.fuzzing import Fuzzed
from tests.support.amqp.fuzzing_0_10 import Fuzzed010

_INPUTS_A_BROKER = 2_000
_MOST_GROWTH_KIB = 64 * 1024


def main() -> None:
    """Run, a new broker every 2,000 inputs of a protocol, and say how many there were."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1200.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 100_000
    print(f"fuzz: {seconds:g} s, seed {seed}", flush=True)
    until_s = time.monotonic() + seconds
    count, first_kib = 0, 0
    while time.monotonic() < until_s:
        for cls in (Fuzzed, Fuzzed010):
            _fuzz(cls(seed + count), seed + count)
        count += _INPUTS_A_BROKER
        gc.collect()
        now_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first_kib = first_kib or now_kib
        print(f"{count} inputs of each, {now_kib / 1024:.0f} MiB at most", flush=True)
    if now_kib - first_kib > _MOST_GROWTH_KIB:
        sys.exit(f"FAILED: memory grew from {first_kib} to {now_kib} KiB")


def _fuzz(fuzzed: Fuzzed | Fuzzed010, seed: int) -> None:
    try:
        for _ in range(_INPUTS_A_BROKER):
            fuzzed.run()
    except AssertionError as failure:
        sys.exit(f"FAILED with {type(fuzzed).__name__} and seed {seed}: {failure}")
    finally:
        fuzzed.close()


if __name__ == "__main__":
    main()
