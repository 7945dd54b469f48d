"""Our AMQP 1.0 machine beside proton's engine: python -m jobs.benchmarks.bench_amqp_engine.

    receive     transfers of 1 KiB in, as read from a socket 64 KiB at a time; each settled as
                accepted, the dispositions out
    send        transfers of 1 KiB out, a hundred before each write; settled by the peer in ranges
    decode      one transfer frame read, performative and payload
    encode      one transfer frame written
    copy        the raw figure: 1 KiB copied, a slice of bytes

The same bytes for both, in one process, in turns; medians count. proton is driven as the first
listener drives it: its raw C interface, events without Python wrappers. proton has no call that
reads or writes one frame, so `decode` and `encode` have its codec for values (`pn_data`) beside
them. No broker, no store, no socket. Lines on standard error, JSON on standard output.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from cproton import (
    PN_ACCEPTED,
    PN_CONNECTION_REMOTE_OPEN,
    PN_DELIVERY,
    PN_LINK_REMOTE_OPEN,
    PN_SESSION_REMOTE_OPEN,
    pn_data,
    pn_data_clear,
    pn_data_decode,
    pn_data_encode,
    pn_data_enter,
    pn_data_exit,
    pn_data_free,
    pn_data_get_binary,
    pn_data_get_bool,
    pn_data_get_uint,
    pn_data_next,
    pn_data_put_binary,
    pn_data_put_bool,
    pn_data_put_described,
    pn_data_put_list,
    pn_data_put_uint,
    pn_data_put_ulong,
    pn_delivery_link,
    pn_delivery_pending,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_update,
    pn_event_delivery,
    pn_event_link,
    pn_event_session,
    pn_event_type,
    pn_link_advance,
    pn_link_flow,
    pn_link_is_sender,
    pn_link_open,
    pn_link_recv,
    pn_session_open,
)

from broker_shim.amqp_1_0.composites import Accepted, Begin, Disposition, Open, SaslInit, Transfer
from broker_shim.broker.settings import BrokerSettings
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.connection import ServerConnection
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.sasl.mechanisms import Anonymous
from jobs.benchmarks.machine import describe, median
from jobs.benchmarks.proton_engine import Engine, send
from tests.support.amqp.amqp_1_0 import attach, flow

PAYLOAD = bytes(range(256)) * 4
CHUNK_BYTES = 65_536
BATCH = 100
WINDOW = (1 << 31) - 1
SASL = SASL_HEADER.encoded() + encoded_frame(SaslInit("ANONYMOUS"), kind=SASL_FRAME)
GREETING = (
    SASL
    + AMQP_HEADER.encoded()
    + encoded_frame(Open("bench", max_frame_size=32_768))
    + encoded_frame(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
)


def transfers(count: int) -> bytes:
    """So many frames from a client."""
    return b"".join(
        transfer_frame(0, Transfer(0, n, n.to_bytes(8, "big"), 0, settled=False), len(PAYLOAD))
        + PAYLOAD
        for n in range(count)
    )


def settlements(count: int) -> list[bytes]:
    """What a client says of each batch that it received."""
    return [
        encoded_frame(Disposition(True, at, at + BATCH - 1, settled=True, state=Accepted()))
        for at in range(0, count, BATCH)
    ]


# ------------------------------------------------------------------------------------------- ours


def our_machine(count: int, *, is_receiver: bool) -> tuple[ServerConnection, Any]:
    """Opened, with one link and all the credit."""
    machine = ServerConnection(
        Settings("b", max_frame_bytes=32_768), {"ANONYMOUS": Anonymous}, now_s=0.0
    )
    machine.receive_data(GREETING + encoded_frame(attach(0, is_receiver=is_receiver)), now_s=0.0)
    machine.open()
    machine.sessions[0].begin()
    link: Any = machine.sessions[0].links[0]
    link.attach()
    if is_receiver:
        machine.receive_data(encoded_frame(flow(0, count, incoming_window=WINDOW)), now_s=0.0)
    else:
        link.flow(count)
    machine.events()
    machine.data_to_send(now_s=0.0)
    return machine, link


def our_receive(count: int, stream: bytes) -> int:
    machine, _ = our_machine(count, is_receiver=False)
    received, accepted = 0, Accepted()
    for at in range(0, len(stream), CHUNK_BYTES):
        machine.receive_data(stream[at : at + CHUNK_BYTES], now_s=0.0)
        for event in machine.events():
            if type(event) is events.DeliveriesReceived:
                received += event.delivery.length
                event.delivery.link.dispose([event.delivery], accepted)
        b"".join(machine.data_to_send(now_s=0.0))
    return received


def our_send(count: int, dispositions: list[bytes]) -> int:
    machine, link = our_machine(count, is_receiver=True)
    settled = 0
    for number, disposition in enumerate(dispositions):
        for tag in range(number * BATCH, (number + 1) * BATCH):
            link.transfer(tag.to_bytes(8, "big"), (PAYLOAD,))
        b"".join(machine.data_to_send(now_s=0.0))
        machine.receive_data(disposition, now_s=0.0)
        for event in machine.events():
            if type(event) is events.DispositionReceived:
                settled += sum(map(len, event.deliveries))
    return settled


# ----------------------------------------------------------------------------------------- proton


def proton_engine(count: int, *, is_receiver: bool) -> tuple[Engine, Any]:
    """Opened, with one link and all the credit."""
    engine = Engine(BrokerSettings())
    engine.receive(GREETING + encoded_frame(attach(0, is_receiver=is_receiver)))
    link = None
    for event in engine.events():
        match pn_event_type(event):
            case kind if kind == PN_CONNECTION_REMOTE_OPEN:
                engine.open()
            case kind if kind == PN_SESSION_REMOTE_OPEN:
                pn_session_open(pn_event_session(event))
            case kind if kind == PN_LINK_REMOTE_OPEN:
                link = pn_event_link(event)
                pn_link_open(link)
                if not pn_link_is_sender(link):
                    pn_link_flow(link, count)
    proton_output(engine)
    if is_receiver:
        proton_input(engine, encoded_frame(flow(0, count, incoming_window=WINDOW)))
    for _ in engine.events():
        pass
    return engine, link


def proton_output(engine: Engine) -> int:
    size = 0
    while written := engine.output(1 << 20):
        size += len(written)
        engine.written(len(written))
    return size


def proton_input(engine: Engine, received: bytes) -> None:
    """As the listener does: as much at a time as proton takes."""
    at = 0
    while at < len(received):
        room = engine.room_bytes
        engine.receive(received[at : at + room])
        at += room


def proton_receive(count: int, stream: bytes) -> int:
    engine, link = proton_engine(count, is_receiver=False)
    received, at = 0, 0
    while at < len(stream):
        room = min(engine.room_bytes, CHUNK_BYTES)
        engine.receive(stream[at : at + room])
        at += room
        for event in engine.events():
            if pn_event_type(event) == PN_DELIVERY:
                delivery = pn_event_delivery(event)
                if pn_delivery_link(delivery) == link and (size := pn_delivery_pending(delivery)):
                    bytes(pn_link_recv(link, size)[1])
                    pn_link_advance(link)
                    pn_delivery_update(delivery, PN_ACCEPTED)
                    pn_delivery_settle(delivery)
                    received += 1
        proton_output(engine)
    engine.free()
    return received


def proton_send(count: int, dispositions: list[bytes]) -> int:
    engine, link = proton_engine(count, is_receiver=True)
    settled = 0
    for number, disposition in enumerate(dispositions):
        for tag in range(number * BATCH, (number + 1) * BATCH):
            send(link, tag, PAYLOAD)
        proton_output(engine)
        engine.receive(disposition)
        for event in engine.events():
            if pn_event_type(event) == PN_DELIVERY:
                delivery = pn_event_delivery(event)
                if pn_delivery_settled(delivery):
                    pn_delivery_settle(delivery)
                    settled += 1
    engine.free()
    return settled


# ------------------------------------------------------------------------------------ one at a time


def our_decode(count: int) -> int:
    frame = transfers(1)
    for _ in range(count):
        _, at = read_performative(frame, 8, len(frame))
        frame[at:]
    return count


def our_encode(count: int) -> int:
    for number in range(count):
        transfer = Transfer(0, number, b"12345678", 0, settled=False)
        transfer_frame(0, transfer, len(PAYLOAD)) + PAYLOAD
    return count


def proton_decode(count: int) -> int:
    frame = transfers(1)
    head, tail = frame[8 : -len(PAYLOAD)], PAYLOAD
    values = pn_data(16)
    for _ in range(count):
        pn_data_clear(values)
        pn_data_decode(values, head)
        pn_data_next(values)
        pn_data_enter(values)
        pn_data_next(values)
        pn_data_next(values)
        pn_data_enter(values)
        pn_data_next(values)
        pn_data_get_uint(values)
        pn_data_next(values)
        pn_data_get_uint(values)
        pn_data_next(values)
        bytes(pn_data_get_binary(values))
        pn_data_next(values)
        pn_data_get_uint(values)
        pn_data_next(values)
        pn_data_get_bool(values)
        pn_data_exit(values)
        tail[:]
    pn_data_free(values)
    return count


def proton_encode(count: int) -> int:
    values = pn_data(16)
    for number in range(count):
        pn_data_clear(values)
        pn_data_put_described(values)
        pn_data_enter(values)
        pn_data_put_ulong(values, 0x14)
        pn_data_put_list(values)
        pn_data_enter(values)
        pn_data_put_uint(values, 0)
        pn_data_put_uint(values, number)
        pn_data_put_binary(values, b"12345678")
        pn_data_put_uint(values, 0)
        pn_data_put_bool(values, False)
        pn_data_exit(values)
        pn_data_exit(values)
        pn_data_encode(values, 1_024)[1] + PAYLOAD
    pn_data_free(values)
    return count


def copies(count: int) -> int:
    source = PAYLOAD + b"x"
    for _ in range(count):
        source[1:]
    return count


def per_second(call: Callable[[], int], count: int) -> float:
    """Done in a second of processor time, as the machine is shared; all have to be done."""
    gc.collect()
    started = time.process_time()
    done = call()
    took = time.process_time() - started
    assert done == count, f"{done} of {count}"
    return count / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="a multiple of 100")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    count: int = options.count
    stream, settled = transfers(count), settlements(count)
    calls: dict[str, Callable[[], int]] = {
        "receive ours": lambda: our_receive(count, stream),
        "receive proton": lambda: proton_receive(count, stream),
        "send ours": lambda: our_send(count, settled),
        "send proton": lambda: proton_send(count, settled),
        "decode ours": lambda: our_decode(count),
        "decode proton": lambda: proton_decode(count),
        "encode ours": lambda: our_encode(count),
        "encode proton": lambda: proton_encode(count),
        "copy": lambda: copies(count),
    }
    rates_of: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            rates_of[name].append(per_second(call, count))
    print(describe(), file=sys.stderr)
    for name, rates in rates_of.items():
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        print(f"{name:16} {median(rates):>12,.0f} a second   ({spread})", file=sys.stderr)
    print(json.dumps({name: round(median(rates)) for name, rates in rates_of.items()}))


if __name__ == "__main__":
    main()
