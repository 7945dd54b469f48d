"""Orders about a pair at the machine that serves: who serves, pause, and the planned switch.

A switch is a stop with a person's reason. What is held, and in which order it is let go of:

1. the port of clients: none comes any more, what they send is dropped, nothing is handed out
2. all that was taken before: the store answers it, and the answer is written to its client. What
   consumers hold is released. Then clients are hung up on (`Listener.successor`)
3. the log: its thread ends, so from then on no record is confirmed (`Log.hand_over`)
4. the lease: the witness's object says that nobody confirms anything, and still names the standby
5. the connection to the standby, by which it knows when to look
6. the tables: what they lack goes there while the standby opens its own; then the root is let go of

Why no message is in doubt: a client was told the outcome of all that the log has, before step 3.
What it sent later was not taken, so it sends that to the other machine, which has it once.

Why nothing is lost, and no two serve: the argument of a take-over (ARCHITECTURE: A standby), whose
lease is over from step 4 on. Each confirmed record was in both logs before. The standby replaces
the very object of step 4, or another process of this root has claimed it: one of the two fails.

Why a kill between any two steps is harmless: before 4 it is the kill of a primary; after it the
standby takes over, or, if that was killed, this root is served again, as the object still names it
(`role_at_start`). The standby that was lost before step 3 holds up step 2 until the witness names
nobody. Then nobody takes over, and this machine serves again.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from sparkstore.config import StoreConfig
from sparkstore.exit_codes import ExitCode
from sparkstore.log.writer import Log
from sparkstore.shipping.log_shipping import Shipping, StandbyFigures
from sparkstore.standby.status import status_row
from sparkstore.tables.root import open_root
from sparkstore.witness.holder import Holder
from sparkstore.witness.place import WitnessPlace, witness_at
from sparkstore.witness.turn import pause, sight

_log = logging.getLogger(__name__)

_LOOK_S = 0.02
_PATIENCE_S = 1.0


class SwitchOutcome(NamedTuple):
    """The machine that serves after a switch, and the time until it did."""

    serves: str
    took_s: float


class PairControl:
    """Carries out orders about the pair of a store that is served; one for each life of a store.

    Calls ask the witness, and may wait for it: on a thread that may wait.
    """

    def __init__(
        self,
        log: Log,
        shipping: Shipping,
        config: StoreConfig,
        stop: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGTERM),
        successor_s: float = 5.0,
    ) -> None:
        """Control the pair of an open log.

        Args:
            log: The log of the root that is served.
            shipping: Its way to a standby.
            config: Settings of the store.
            stop: Has this process end its service, as SIGTERM does; from any thread.
            successor_s: How long a standby has for its take-over before this machine looks whether
                it is to serve again. It is in nobody's way: until then no machine serves.
        """
        self._log, self._shipping, self._config, self._stop = log, shipping, config, stop
        self._successor_s = successor_s
        self._guard = threading.Lock()
        self._outcome: Future[SwitchOutcome] | None = None
        self._thread: threading.Thread | None = None
        self._witness: WitnessPlace | None = None
        self._began_s = 0.0
        self._signals_due = 0

    @property
    def figures(self) -> StandbyFigures:
        """Return the figures of the standby; it waits for nothing."""
        return self._shipping.figures

    @property
    def is_alone(self) -> bool:
        """Tell whether nothing that is confirmed need be at a standby."""
        return self.figures.is_alone

    @property
    def last_known(self) -> Holder | None:
        """Return what the witness says, as last known; None: there is no witness. Asks nobody."""
        witness = self._log.witness
        return None if witness is None else witness.holder

    def holder(self) -> Holder:
        """Return what the witness says.

        Raises:
            InvalidRequest: There is no witness.
            StoreError: It does not answer, or its object is gone.
        """
        sighted = sight(self._place())
        if sighted is None:
            raise Unavailable("the witness has no object: mount its folder, or restore the object")
        return sighted[0]

    def status(self) -> dict[str, Any]:
        """Return the row of `status_row`, with the figures of the standby. Raises as `holder`."""
        return status_row(self.holder(), self.figures)

    def pause(self, *, is_paused: bool) -> Holder:
        """Let no standby take over, or let it again. Raises as `holder`."""
        return pause(self._place(), is_paused=is_paused)

    def check_switch(self) -> Holder:
        """Return what the witness says, if a switch may begin now.

        Raises:
            InvalidRequest: There is no witness; it is paused; this machine has no peer.
            Unavailable: No standby is in step, or a switch is under way.
            StoreError: The witness does not answer.
        """
        holder = self.holder()
        if holder.is_paused:
            raise InvalidRequest("take-overs are paused: sparkstore failover resume ROOT, first")
        if not self._config.peer:
            text = "after a switch this machine follows the other one, and does not know where that"
            raise InvalidRequest(f"{text} is: start it with --standby-of, or set [store] peer")
        if not (holder.in_step and self.figures.is_in_step):
            text = "no standby is in step, so none could take over: start it, and see"
            raise Unavailable(f"{text} sparkstore failover status ROOT")
        if self._outcome is not None:
            raise Unavailable("a switch is under way: see sparkstore failover status ROOT")
        return holder

    def switch(self, by: str) -> Future[SwitchOutcome]:
        """Begin a switch; the outcome comes when the other machine has taken over, or has not.

        Args:
            by: Who orders it.

        Raises:
            StoreError: It may not begin, for the reasons of `check_switch`.
        """
        self.check_switch()
        with self._guard:
            if self._outcome is not None:
                raise Unavailable("a switch is under way: see sparkstore failover status ROOT")
            self._outcome = Future()
            # It runs from now on, so whoever gives up waiting for it does not cancel it.
            self._outcome.set_running_or_notify_cancel()
        self._signals_due = 1
        self._log.ends_by, self._began_s = f"ordered by {by}", time.monotonic()
        _log.warning("switching to the standby: %s", self._log.ends_by)
        self._stop()
        return self._outcome

    def took_signal(self) -> bool:
        """Tell, once for each order, whether a signal to stop is the order's own."""
        is_own, self._signals_due = self._signals_due > 0, 0
        return is_own

    @property
    def is_expected(self) -> bool:
        """Tell whether the standby is to take over, or else this machine serves again.

        As last known: the witness is not asked amid a stop.
        """
        if self._outcome is not None:
            return True
        witness = self._log.witness
        return witness is not None and witness.names_successor and self.figures.is_in_step

    def go_on(self) -> None:
        """Hand over, as nothing is under way any more, while clients hang up. See `Successor`."""
        self._thread = threading.Thread(target=self._hand_over, name="switch")
        self._thread.start()

    def code_of(self, code: int) -> int:
        """Return the exit code of a store that was closed: after a switch this process goes on."""
        if self._thread is None:  # members were served, too
            self._hand_over()
        else:
            self._thread.join()
        return ExitCode.TAKEN_OVER if self._outcome and code == ExitCode.DONE else code

    def _hand_over(self) -> None:
        self._log.hand_over()
        outcome = self._outcome
        if outcome is None:  # it was just stopped
            return
        successor = self._successor()
        if successor is None:
            text = "the standby did not take over: this machine looks again which of the two serves"
            _log.warning("%s", text)
            outcome.set_exception(Unavailable(text))
            return
        took_s = time.monotonic() - self._began_s
        _log.warning("%s serves, %.1f s after the order", successor.where, took_s)
        outcome.set_result(SwitchOutcome(successor.where, took_s))

    def _successor(self) -> Holder | None:
        """Wait until another root has the lease; None if none takes it."""
        own, tick = self._log.root.identity.root_id, threading.Event()
        ends_at = time.monotonic() + self._successor_s
        holder = None
        while time.monotonic() < ends_at:
            try:
                holder = self.holder()
            except (StoreError, OSError) as reason:
                _log.debug("the witness does not answer: %s", reason)
            else:
                if holder.root_id == own and not holder.in_step:
                    return None
                if holder.root_id != own and not holder.is_closed:
                    return holder
            tick.wait(_LOOK_S)
        return holder if holder is not None and holder.root_id != own else None

    def _place(self) -> WitnessPlace:
        if self._witness is None:
            root = self._log.root
            witness = open_root(root.path).identity.witness  # it may be new
            if not witness:
                message = f"{root.path} has no witness: nothing takes over by itself"
                raise InvalidRequest(f"{message} (docs/failover.md)")
            self._witness = witness_at(witness, patience_s=_PATIENCE_S)
        return self._witness
