"""Look at a machine's clock, for the doctor and for the overview of a broker."""

from __future__ import annotations

import ctypes

from sparkstore.cli.health.diagnosis import Diagnosis

_UNSYNCHRONISED = 5  # TIME_ERROR of <sys/timex.h>
_TIMEX_BYTES = 512  # more than struct timex of any architecture


def of_clock() -> Diagnosis:
    """Ask the kernel whether something keeps the clock right.

    The call changes nothing: no mode is set in the structure that it gets.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    state = libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state < 0:
        return Diagnosis("clock", "warn", "the kernel does not tell", "look whether chrony runs")
    if state == _UNSYNCHRONISED:
        text = "times to live and history go by it: run chrony, ntpd or systemd-timesyncd"
        return Diagnosis("clock", "warn", "nothing keeps it right", text)
    return Diagnosis("clock", "ok", "kept right")
