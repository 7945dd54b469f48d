"""Tell of a process what monitors ask: its metrics, its health, and whether it serves now.

What is told is put together on the thread that owns it, and whoever asks waits. The library of
metrics is imported with the first who asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from broker_shim.serve.pair.control import PairControl

PATIENCE_S = 5.0
Families = Callable[[], "Iterable[Metric]"]
Trouble = Callable[[], str | None]
"""Tells why nothing is served now; None while all is well."""
Post = Callable[[Callable[[], None]], None]
"""Has a call made on the thread that owns what is told."""
T = TypeVar("T")


class Probes:
    """The process as requests see it, and as it reports its start, service and stop.

    Attributes:
        is_serving: A store is served: of two machines this is the primary.
        standby_trouble: Tells of a standby why it is not in step; None: it is no standby.
        pair: Carries out orders about the pair; None: a standby may not come, or this is one.
    """

    def __init__(self) -> None:
        self.is_serving = False
        self.standby_trouble: Trouble | None = None
        self.pair: PairControl | None = None
        self.now(lambda: (), lambda: "the store is being opened", None)

    def now(self, families: Families, trouble: Trouble, post: Post | None) -> None:
        """Report a state that holds from now on; see `reporting.Reporter.serving`."""
        self._state = families, trouble, post

    def metrics(self, accept: str | None) -> tuple[bytes, str]:
        """Encode all metrics in the text that an `Accept` header asks for; the text and its type.

        Raises:
            NoAnswer: Their owner does not come round.
        """
        from prometheus_client.exposition import CONTENT_TYPE_LATEST  # noqa: PLC0415  # see above

        from sparkstore.metrics import exposition  # noqa: PLC0415

        families, _, post = self._state
        wants = exposition.ASKS_FOR_OPENMETRICS in (accept or "")
        metrics = _ask(lambda: [*families()], post)
        body = exposition.encoded(metrics, of_process=True, as_openmetrics=wants)
        return body, exposition.OPENMETRICS if wants else CONTENT_TYPE_LATEST

    def health(self) -> None:
        """Return if the owner comes round; raises NoAnswer else."""
        _ask(lambda: None, self._state[2])

    def standby(self) -> str | None:
        """Why this process is no standby in step; None while it is one."""
        return "no standby" if self.standby_trouble is None else self.standby_trouble()

    def readiness(self) -> str | None:
        """Why nothing is served now; None while all is well. Raises NoAnswer likewise."""
        _, trouble, post = self._state
        return _ask(trouble, post)

    @property
    def whom_to_ask(self) -> str:
        """Say what to do for whoever asks a process that serves no broker now."""
        if self.standby_trouble is not None:
            return "this machine is the standby of a pair: ask the other one, which serves"
        return "the broker does not serve yet, or no more: GET /readyz says why"

    @property
    def is_alone(self) -> bool:
        """Tell whether a machine of a pair serves without its standby."""
        return self.pair is not None and self.pair.is_alone


def _ask(call: Callable[[], T], post: Post | None) -> T:
    if post is None:
        return call()
    answer: Future[T] = Future()

    def make() -> None:
        try:
            answer.set_result(call())
        except Exception as reason:  # noqa: BLE001  # told to whoever asked
            answer.set_exception(reason)

    post(make)
    return answer.result(PATIENCE_S)
