"""Show counters to Prometheus: make families of metrics of them, and replace text files whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from sparkstore.metrics.counters import counters_of
from sparkstore.metrics.histograms import Histogram, histograms_of

ASKS_FOR_OPENMETRICS = "application/openmetrics-text"
"""What an `Accept` header contains that asks for it; Prometheus itself does."""
OPENMETRICS = openmetrics.CONTENT_TYPE_LATEST
Labels = Mapping[str, str]


def counters(prefix: str, counts: Any) -> Iterator[Metric]:
    """The counters of a dataclass (`metrics.counters`), each `<prefix>_<field>_total`.

    Those with a reason share a metric: its help is that of the first, its label `reason`. Then its
    histograms (`metrics.histograms`), each `<prefix>_<field>`.
    """
    shared: dict[str, Any] = {}
    for counter in counters_of(counts):
        name = _name(f"{prefix}_{counter.metric}")
        if not counter.reason:
            yield CounterMetricFamily(name, counter.help, counter.value)
            continue
        if name not in shared:
            shared[name] = CounterMetricFamily(name, counter.help, labels=["reason"])
        shared[name].add_metric([counter.reason], counter.value)
    yield from shared.values()
    for named in histograms_of(counts):
        yield histogram(f"{prefix}_{named.name}", named.help, named.histogram)


def histogram(name: str, help_text: str, durations: Histogram) -> Metric:
    """Make a histogram; durations are in seconds, and the name says so."""
    return HistogramMetricFamily(name, help_text, durations.buckets, durations.sum_s)


def gauge(name: str, help_text: str, values: Iterable[tuple[Labels, float]]) -> Metric:
    """A gauge with a value for each set of labels; all sets have the same names."""
    return _labelled(GaugeMetricFamily, name, help_text, values)


def counter(name: str, help_text: str, values: Iterable[tuple[Labels, float]]) -> Metric:
    """Make a counter with a value for each set of labels; `_total` is added to its name."""
    return _labelled(CounterMetricFamily, name, help_text, values)


def info(name: str, help_text: str, labels: Labels) -> Metric:
    """Make the metric `<name>_info` with a process's facts as labels; its value is 1."""
    return InfoMetricFamily(name, help_text, {key: _written(labels[key]) for key in labels})


def _labelled(
    family: Any, name: str, help_text: str, values: Iterable[tuple[Labels, float]]
) -> Metric:
    samples = [*values]
    names = [*samples[0][0]] if samples else []
    made: Metric = family(_name(name), help_text, labels=names)
    for labels, value in samples:
        made.add_metric([_written(labels[name]) for name in names], value)  # type: ignore[attr-defined]
    return made


def _name(name: str) -> str:
    """The name of a metric: a field of seconds ends in `_s` here, and in the unit there."""
    return f"{name}econds" if name.endswith("_s") else name


def _written(label: str) -> str:
    """Write a label so that a text file can hold it: a name may have half a surrogate pair."""
    return label.encode("utf-8", "backslashreplace").decode()


class Families(Collector):
    """Metrics that were taken already, as a registry wants them."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return all families of metrics."""
        return self._families


def encoded(
    families: Iterable[Metric], *, of_process: bool = False, as_openmetrics: bool = False
) -> bytes:
    """Encode metrics as text: of Prometheus, or of OpenMetrics.

    Args:
        families: What is encoded, each family of metrics once.
        of_process: Also show this process's memory, processor time and open files.
        as_openmetrics: Write the text of OpenMetrics 1.0, which ends in `# EOF`.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families([*families]))
    if of_process:
        ProcessCollector(registry=registry)
    if not as_openmetrics:
        return generate_latest(registry)
    text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


def replace_textfile(path: Path, text: bytes) -> None:
    """Replace a file of the textfile collector: whoever reads it sees the old one or the new.

    Raises:
        OSError: The folder is not there, or cannot be written.
    """
    scratch = path.with_name(path.name + ".new")
    scratch.write_bytes(text)
    scratch.chmod(0o644)  # the collector is another user
    scratch.replace(path)
