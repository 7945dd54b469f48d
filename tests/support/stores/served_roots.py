"""The stores that `sparkstore serve ROOT` opens, without its command line."""

from __future__ import annotations

from argparse import Namespace

from broker_shim.serve.stores import Stores, open_stores
from sparkstore.config import StoreConfig


def open_root_stores(root: str, config: StoreConfig) -> Stores:
    """Those of a root, a folder or in a bucket, chained as the settings say."""
    chosen = {"memory": False, "configuration": None, "store": None, "accept_loss": False}
    options = Namespace(root=root, no_amqp=False, store_socket=None, store_listen=None, **chosen)
    return open_stores(options, config)
