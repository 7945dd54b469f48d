"""Storage under the journal that fails when a test says so."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from sparkstore.log import journal as journal_module


class Storage:
    """Delta commits that fail while `is_down`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_down = False
        self.lands = False
        self.tries = 0
        monkeypatch.setattr(journal_module, "write_deltalake", self)

    def __call__(self, *args: Any, **named: Any) -> None:
        self.tries += 1
        if self.is_down and not self.lands:
            raise CommitFailedError("the storage did not answer")
        write_deltalake(*args, **named)
        if self.is_down:
            raise CommitFailedError("the answer got lost")
