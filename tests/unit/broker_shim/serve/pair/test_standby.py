"""What the settings of a pair may not say together is refused before anything is opened."""

from __future__ import annotations

from argparse import Namespace

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.serve.pair.standby import with_pair
from sparkstore.config import StoreConfig

PEER = "tcp:10.0.0.2:5680"


def options(**given: object) -> Namespace:
    """The command line of a standby, with some of it changed."""
    usual = {"root": "/r", "standby_of": PEER, "standby_listen": None, "token_file": "token"}
    return Namespace(**{**usual, **given})


@pytest.mark.parametrize(
    ("given", "config", "reason"),
    [
        ({"standby_listen": "10.0.0.2:5680"}, {}, "own --standby-listen: name the other machine"),
        ({"root": "s3://lake/r"}, {}, "needs a root in a folder"),
        ({"root": None}, {}, "needs a root in a folder: --configuration"),
        ({"token_file": None}, {}, "needs --token-file FILE"),
        ({"standby_of": "10.0.0.2:5680"}, {}, "write it as tcp:HOST:PORT"),
        ({"standby_of": "tcp:somewhere"}, {}, "write it as tcp:HOST:PORT"),
        ({}, {"ack": "delta"}, "ships the write-ahead log"),
        ({"standby_of": None, "standby_listen": ":5680"}, {"ack": "delta"}, "--standby-listen"),
    ],
)
def test_a_pair_is_refused_in_one_line(
    given: dict[str, object], config: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        with_pair(options(**given), StoreConfig(**config))


def test_the_command_line_counts_before_the_file() -> None:
    config = with_pair(options(), StoreConfig(peer="tcp:10.0.0.3:1", standby_listen="10.0.0.1:1"))
    assert (config.peer, config.standby_listen) == (PEER, "10.0.0.1:1")
