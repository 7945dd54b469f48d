"""Tier 1 of links: termini survive in one JSON file, by container and name.

    {"format": "sparkstore links", "version": 1,
     "sendingLinks":   {container: {link name: {"source": {…} | null, "target": {…} | null, …}}},
     "receivingLinks": {container: {link name: {"source": {…} | null, "target": {…} | null, …}}}}

A sending link is one on which we send; what is said of a link is its JSON form
(`links.termini.terminus_values`). See `file` for how the file is written, and what if that fails.
Whether a link is attached is not kept: after a restart none is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed
from broker_shim.links.termini.terminus_values import LinkTerms
from broker_shim.store.json.file import ReplacedFile, lock_file, read_whole
from sparkstore.core.link_records import LinkKey, Role

FORMAT = "sparkstore links"
VERSION = 1

_SECTIONS = {Role.SENDER: "sendingLinks", Role.RECEIVER: "receivingLinks"}


class JsonLinkStore:
    """A `LinkStore` that keeps termini in the file at `path`, made by the first one.

    Raises:
        Locked: Another store has the file open.
        InvalidRequest: There is no such folder.
        CorruptData: The file cannot be read, or is from a newer version; it is left as it is.
    """

    highest = TerminusDurability.CONFIGURATION

    def __init__(self, path: Path) -> None:
        self._file_lock = lock_file(path)
        try:
            self._links = read_links(path)
        except BaseException:
            self._file_lock.release()
            raise
        self._is_closed = False
        self._file = ReplacedFile(path, lambda: packed(self._links), "json-links")

    def recover(self) -> Mapping[LinkKey, LinkTerms]:
        """Get all links that the file has, with their termini. See `LinkStore`."""
        with self._file.lock:
            self._check_open()
            return dict(self._links)

    def attach(self, key: LinkKey, terms: LinkTerms, on_complete: OnComplete) -> None:
        """Write the termini of a link; the same ones again are no write. See `LinkStore`."""
        with self._file.lock:
            self._check_open()
            is_change = self._links.get(key) != terms
            self._links[key] = terms
            self._file.turn(on_complete, is_change=is_change)

    def detach(self, key: LinkKey, on_complete: OnComplete, *, closed: bool) -> None:
        """Forget a link that is closed; one that is not changes nothing. See `LinkStore`."""
        with self._file.lock:
            self._check_open()
            is_change = closed and self._links.pop(key, None) is not None
            self._file.turn(on_complete, is_change=is_change)

    def close(self) -> None:
        """Wait for the write under way, and give back the lock of the file. See `LinkStore`."""
        with self._file.lock:
            self._is_closed = True
        self._file.close()
        self._file_lock.release()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the link store is closed: open a new one")


def packed(links: Mapping[LinkKey, LinkTerms]) -> bytes:
    """Encode links as the file has them."""
    sections: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in _SECTIONS.values()}
    for key, terms in links.items():
        of_container = sections[_SECTIONS[terms.role]].setdefault(key.remote_container_id, {})
        of_container[key.name] = terms.as_json()
    return json.dumps({"format": FORMAT, "version": VERSION, **sections}, indent=1).encode()


def read_links(path: Path) -> dict[LinkKey, LinkTerms]:
    """The links in a file; see `file.read_whole`."""
    return read_whole(path, FORMAT, VERSION, _links_of, {})


def _links_of(content: dict[str, Any]) -> dict[LinkKey, LinkTerms]:
    links = {}
    for role, section in _SECTIONS.items():
        for container, named in content[section].items():
            for name, shown in named.items():
                links[LinkKey(container, name, role)] = LinkTerms.from_json(role, shown)
    return links
