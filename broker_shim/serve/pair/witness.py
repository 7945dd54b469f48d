"""Wait at a start until the witness of a root answers: as long as that takes, and say so.

Decision: without a bound, and no exit code. A mount that comes up late, and a bucket that is cut
off, come back without anybody's doing. A supervisor would start the process again and again
meanwhile, or give up; this one is asked by probes, says what it waits for, and ends when it is told
to. A name that no root has served under yet is refused at once: that is most often a slip.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.serve.systemd import notify
from sparkstore.config import StoreConfig
from sparkstore.storage.objects import is_object_uri

if TYPE_CHECKING:
    from broker_shim.serve.probes import Probes

_log = logging.getLogger(__name__)

_AGAIN_S = 1.0


def wait_for_witness(
    root: str | None,
    config: StoreConfig,
    probes: Probes,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Return when the witness of a root that has served under one can say who serves.

    Raises:
        StoreError: The witness refuses this process, which no time mends.
    """
    if not root or is_object_uri(root):
        return
    from sparkstore.tables.root import is_root, open_root, path_of  # noqa: PLC0415
    from sparkstore.witness.place import absence_of  # noqa: PLC0415

    path = path_of(root)
    where = open_root(path).identity.witness if is_root(path) else ""
    if not where or config.witness not in {"", where}:
        return  # the start says what is wrong
    last = ""
    while absence := absence_of(where):
        if absence != last:
            _log.warning("waiting for the witness: %s", absence)
            notify(f"STATUS=waiting for the witness {where}")
            probes.now(lambda: (), partial(str, f"waiting for the witness: {absence}"), None)
        last = absence
        wait(_AGAIN_S)
    if last:
        _log.warning("the witness answers: %s", where)
