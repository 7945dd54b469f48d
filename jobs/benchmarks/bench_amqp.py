"""The AMQP 1.0 listener beside the one on proton, and beside Broker-J: `make bench-amqp`.

    python -m jobs.benchmarks.bench_amqp [--count N] [--rounds N] [--only NAME,…] [--json]

    send x 1, send x 8   persistent messages of 1 KiB, each settled once it is stored; so many
                         connections, each with the broker's credit
    receive              the same messages taken and accepted, 1,000 of credit, one connection
    own send, receive    messages with an id and five properties of their own, one connection
    send in turn         one connection that waits for each outcome: ms until it came
    receive in turn      credit 1: ms from an acceptance to the next delivery
    0-10 send, receive   the same by AMQP 0-10, one connection: complete once it is stored
    idle                 memory of 1,000 connections of 10 links each, more than of none

Brokers, each a process of its own, started anew for each round, one after the other:

    ours, proton              on a root in build/: a message is settled once it is durable
    ours memory, proton memory    nothing is kept: what the listener by itself costs
    broker-j memory           Broker-J as it is published, on its memory store, which refuses
                              persistent messages: it gets others
    broker-j BDB              the same on BDB JE, of the peer's harness (../shared/peers/brokerj)
    artemis                   Apache Artemis on its journal, synced (../shared/peers/artemis)
    ours unbatched            on a root, before messages went in batches

`proton` is this repository at the last commit whose listener stood on python-qpid-proton, `ours
unbatched` at the last one whose store was asked message by message. The client is the same for all
(`amqp_load`); its processor time is printed, too. Each broker is warm before it is measured: COUNT
messages are sent and received 3 times (`--warm-up`), since a JVM that has just begun is slow.
Figures are medians of the rounds, with least and most. What this machine lacks is skipped, and the
reason is told.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jobs.benchmarks import amqp_0_10_load
from jobs.benchmarks.amqp_brokers import BROKERS, Listening, available, serving
from jobs.benchmarks.amqp_load import (
    attach_idle,
    message,
    receive_all,
    receive_in_turn,
    send_all,
    send_in_turn,
    transfers,
    transfers_of,
)
from jobs.benchmarks.machine import BUILD, append_and_sync_ms, describe, median, percentile

SIZE = 1_024
_TICKS = os.sysconf("SC_CLK_TCK")


class Figure(NamedTuple):
    """Messages a second; processor time of broker and client in µs a message."""

    per_second: float
    broker_us: float
    client_us: float


class Waits(NamedTuple):
    """Milliseconds that a client waited which has one message under way."""

    p50: float
    p99: float


def warm_up(broker: Listening, count: int, streams: dict[int, list[bytes]], rounds: int) -> None:
    """So many rounds of the messages sent and received, measured by nobody."""
    for _ in range(rounds):
        send_all(broker.port, "load", streams[1], count)
        receive_all(broker.port, "load", count)


def measure(
    broker: Listening, count: int, streams: dict[int, list[bytes]], own: bytes
) -> dict[str, Figure]:
    """Each phase once; as many messages as were sent by one sender stay.

    Args:
        broker: Where to.
        count: How many messages.
        streams: Those that are alike, by the number of their senders, a stream for each.
        own: Those that each have their own id and properties.
    """
    figures: dict[str, Figure] = {}
    for senders, prepared in streams.items():
        share = count // senders
        with _timed(broker, figures, f"send x {senders}", count) as took:
            took.append(send_all(broker.port, "load", prepared, share))
    # What was sent is taken in as many parts as it was sent in.
    with _timed(broker, figures, "receive", count) as took:
        took.append(receive_all(broker.port, "load", count))
    with _timed(broker, figures, "own send", count) as took:
        took.append(send_all(broker.port, "own", [own], count))
    with _timed(broker, figures, "own receive", count) as took:
        took.append(receive_all(broker.port, "own", count))
    if broker.older_port:
        _measure_older(broker, count, figures)
    return figures


def measure_waits(broker: Listening, count: int, stream: bytes) -> dict[str, Waits]:
    """A client that waits for each message: `stream` has `count`; as many are there to receive."""
    sent = send_in_turn(broker.port, "load", stream, count)
    received = receive_in_turn(broker.port, "load", count)
    waits_of = {"send in turn": sent, "receive in turn": received}
    return {
        phase: Waits(percentile(waits, 0.5), percentile(waits, 0.99))
        for phase, waits in waits_of.items()
    }


def _measure_older(broker: Listening, count: int, figures: dict[str, Figure]) -> None:
    """The same by AMQP 0-10, one connection."""
    stream = amqp_0_10_load.transfers(count, SIZE, "load")
    warm = count // 10
    amqp_0_10_load.send(broker.older_port, stream[: len(stream) // count * warm], warm)
    amqp_0_10_load.receive(broker.older_port, "load", warm)
    with _timed(broker, figures, "0-10 send x 1", count) as took:
        took.append(amqp_0_10_load.send(broker.older_port, stream, count))
    with _timed(broker, figures, "0-10 receive", count) as took:
        took.append(amqp_0_10_load.receive(broker.older_port, "load", count))


@contextmanager
def _timed(
    broker: Listening, figures: dict[str, Figure], phase: str, count: int
) -> Iterator[list[float]]:
    took: list[float] = []
    before, ours = cpu_s(broker.pid), time.process_time()
    yield took
    used, client = cpu_s(broker.pid) - before, time.process_time() - ours
    figures[phase] = Figure(count / took[0], used / count * 1e6, client / count * 1e6)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def idle_mib(name: str, connections: int, links: int) -> float:
    """MiB of a broker with so many idle connections, more than with none."""
    with serving(name) as broker:
        send_all(broker.port, "load", [transfers(10, message(SIZE))], 10)
        before = resident_mib(broker.pid)
        peers = [attach_idle(broker.port, links, "load") for _ in range(connections)]
        more = resident_mib(broker.pid) - before
        for peer in peers:
            peer.socket.close()
    return more


def resident_mib(pid: int) -> float:
    """Memory of a process, in MiB."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=20_000, help="a multiple of 80")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=3, help="rounds of COUNT before measuring")
    parser.add_argument("--in-turn", type=int, default=1_000, help="messages of who waits for each")
    parser.add_argument("--only", default=",".join(BROKERS))
    parser.add_argument("--no-idle", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = available([name for name in BROKERS if name in options.only.split(",")])
    count: int = options.count
    streams = {
        durable: {n: [transfers(count // n, message(SIZE, durable=durable))] * n for n in (1, 8)}
        for durable in (True, False)
    }
    own = {durable: _own_stream(count, durable=durable) for durable in (True, False)}
    figures: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    waits: dict[tuple[str, str], list[Waits]] = defaultdict(list)
    in_turn: int = options.in_turn
    for _ in range(options.rounds):
        for name in names:
            with serving(name) as broker:
                is_durable = name != "broker-j memory"
                prepared = streams[is_durable]
                warm_up(broker, count, prepared, options.warm_up)
                for phase, figure in measure(broker, count, prepared, own[is_durable]).items():
                    figures[name, phase].append(figure)
                few = transfers(in_turn, message(SIZE, durable=is_durable))
                for phase, waited in measure_waits(broker, in_turn, few).items():
                    waits[name, phase].append(waited)
    _print(figures, waits, {} if options.no_idle else _idle(names), as_json=options.json)


def _own_stream(count: int, *, durable: bool) -> bytes:
    """So many messages of which no two are alike."""
    numbered = [
        message(SIZE, durable=durable, number=number, have_properties=True)
        for number in range(count)
    ]
    return transfers_of(numbered)


def _idle(names: list[str]) -> dict[str, float]:
    own = [name for name in names if name in {"ours memory", "proton memory"}]
    return {name: idle_mib(name, 1_000, 10) for name in own}


def _ratios(rounds: dict[tuple[str, str], list[Figure]]) -> dict[str, float]:
    """AMQP 0-10 beside AMQP 1.0 of the same broker in the same rounds."""
    rates = {
        key: median([figure.per_second for figure in figures]) for key, figures in rounds.items()
    }
    return {
        f"{phase} of {name} beside its 1.0": round(rate / rates[name, phase[5:]], 2)
        for (name, phase), rate in sorted(rates.items())
        if phase.startswith("0-10 ")
    }


def _print(
    figures: dict[tuple[str, str], list[Figure]],
    waits: dict[tuple[str, str], list[Waits]],
    idle: dict[str, float],
    *,
    as_json: bool,
) -> None:
    synced_ms = median(append_and_sync_ms(BUILD, SIZE))
    print(f"{describe()}; append + fdatasync of 1 KiB {synced_ms:.2f} ms", file=sys.stderr)
    printed: dict[str, list[float]] = {}
    for (name, phase), rounds in sorted(figures.items(), key=lambda item: item[0][1]):
        rates = [figure.per_second for figure in rounds]
        broker_us = median([figure.broker_us for figure in rounds])
        client_us = median([figure.client_us for figure in rounds])
        printed[f"{phase} {name}"] = [round(median(rates)), round(broker_us, 1)]
        line = f"{phase:13} {name:16} {median(rates):>9,.0f} a second"
        spread = f"({min(rates):,.0f} to {max(rates):,.0f})"
        line += f" {spread:22} broker {broker_us:5.1f} µs, client {client_us:4.1f} µs a message"
        print(line, file=sys.stderr)
    for (name, phase), waited in sorted(waits.items(), key=lambda item: item[0][1]):
        p50, p99 = median([item.p50 for item in waited]), median([item.p99 for item in waited])
        printed[f"{phase} {name}"] = [round(p50, 2), round(p99, 2)]
        print(f"{phase:15} {name:16} p50 {p50:5.2f} ms, p99 {p99:6.2f} ms", file=sys.stderr)
    for phase, ratio in _ratios(figures).items():
        printed[phase] = [ratio]
        print(f"{phase}: {ratio:.2f}", file=sys.stderr)
    for name, mib in idle.items():
        printed[f"idle {name}"] = [round(mib)]
        print(f"idle       {name:16} {mib:9.0f} MiB for 1,000 x 10 links", file=sys.stderr)
    if as_json:
        print(json.dumps(printed))


if __name__ == "__main__":
    main()
