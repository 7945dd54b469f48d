"""Answer one query in this process, which the kernel keeps within limits, and end.

    python -m sparkstore.cli.queries.limited_process < question > answer

The broker's HTTP port starts it (`broker_shim.serve.http.limited_answers`). Both are
JSON: the fields of `LimitedQuestion`; columns, rows as `sparkstore sql --json` prints them, and
whether there are more, or an error and exit code 1. Or those of `SeriesQuestion` and a
`QueueSeries`, or of `SearchQuestion` and a `SearchResult`. Which queries pass is
`embedded.typed_select`'s to say.

Decision: a process for each query, not a thread of the broker. A thread can be interrupted, and
DuckDB counts its own memory. But functions in Python would take the interpreter lock from the
broker's loop, nobody counts what Arrow reads, and a fault of the engine would end the broker. The
kernel keeps these limits whatever the engine does, also when the broker is gone. A start costs half
a second of one core.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sparkstore import errors

MOST_MEMORY_BYTES = 768 << 20
MOST_ANSWER_BYTES = 8 << 20
_CORES, _NICE = 2, 10
_OUT_OF_MEMORY = Path("/proc/self/oom_score_adj")
FAILED = 1
"""The exit code with an error as the answer. The clock ends the process by SIGALRM."""


class LimitedQuestion(NamedTuple):
    """A question to this process.

    Attributes:
        root: The folder of the root, absolute: the process runs in `/`.
        statement: A SELECT in DuckDB's SQL, as somebody typed it.
        limit: Most rows, at least 1.
        most_s: Seconds until the process ends, with or without an answer.
        as_of: The time, or the position, that is asked about; None: now.
    """

    root: str
    statement: str
    limit: int
    most_s: float
    as_of: str | None = None


class SeriesQuestion(NamedTuple):
    """A question for the series of a queue.

    Attributes:
        root: The folder of the root, absolute.
        queue: The whole name of the queue.
        times: The fields of `embedded.series_times.SeriesTimes`.
        most_s: Seconds until the process ends, with or without an answer.
    """

    root: str
    queue: str
    times: tuple[int, int, int]
    most_s: float


class SearchQuestion(NamedTuple):
    """A question for messages by subject or property.

    Attributes:
        root: The folder of the root, absolute.
        terms: The fields of `embedded.message_search.SearchTerms`.
        most_s: Seconds until the process ends, with or without an answer.
    """

    root: str
    terms: tuple[str, str, str, int, int]
    most_s: float


Question = LimitedQuestion | SeriesQuestion | SearchQuestion
_KINDS: tuple[type[Question], ...] = (LimitedQuestion, SeriesQuestion, SearchQuestion)


def main() -> int:
    """Answer the question that standard input has."""
    content = json.load(sys.stdin)
    kind = next(kind for kind in _KINDS if content.keys() == {*kind._fields})
    question: Question = kind(**content)
    limit_this_process(question.most_s)
    try:
        print(answered(question))
    except errors.StoreError as reason:
        print(json.dumps({"error": type(reason).__name__, "message": str(reason)}))
        return FAILED
    return 0


def limit_this_process(most_s: float) -> None:
    """Limit time, memory and processors, and write no file; before an engine is loaded."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # its own keeps a third of the limit
    signal.setitimer(signal.ITIMER_REAL, most_s)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.sched_setaffinity(0, set(islice(sorted(os.sched_getaffinity(0)), _CORES)))
    os.nice(_NICE)
    with suppress(OSError):  # a container may have no /proc of its own
        _OUT_OF_MEMORY.write_text("1000")  # whom the kernel ends first, before the broker
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def answered(question: Question) -> str:
    """Answer a question as one JSON object.

    Raises:
        InvalidRequest: The query is wrong, asks for more than the views, or for too much.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read, or DuckDB is not installed.
    """
    try:
        if isinstance(question, SeriesQuestion):
            return _series(question)
        if isinstance(question, SearchQuestion):
            return _search(question)
        return _answered(question)
    except MemoryError as reason:
        raise _too_much() from reason
    except errors.Unavailable as reason:
        if isinstance(reason.__cause__, _out_of_memory()):
            raise _too_much() from reason
        raise
    except ModuleNotFoundError as reason:
        text = f"SQL needs {reason.name}, which pip install sparkstore brings: install it"
        raise errors.Unavailable(text) from reason


def _answered(question: LimitedQuestion) -> str:
    from sparkstore.cli.output import json_lines
    from sparkstore.cli.queries.duckdb_sql import answer  # within the limits
    from sparkstore.tables.root import open_root

    result = answer(open_root(question.root), question.statement, question.limit, question.as_of)
    pairs = zip(result.columns, result.types, strict=True)
    columns = [{"name": name, "type": kind} for name, kind in pairs]
    rows, size = list[str](), 0
    for line in json_lines(result.rows):
        rows.append(line)
        size += len(line)
        if size > MOST_ANSWER_BYTES:
            text = f"the answer has more than {MOST_ANSWER_BYTES >> 20} MiB"
            raise errors.InvalidRequest(f"{text}: name fewer columns, or fewer rows")
    head = json.dumps({"columns": columns, "is_cut": result.is_cut})
    return f'{head[:-1]}, "rows": [{", ".join(rows)}]}}'


def _series(question: SeriesQuestion) -> str:
    from sparkstore.embedded.queue_series import queue_series  # within the limits
    from sparkstore.embedded.series_times import SeriesTimes
    from sparkstore.tables.root import open_root

    root, times = open_root(question.root), SeriesTimes(*question.times)
    return json.dumps(queue_series(root, question.queue, times)._asdict())


def _search(question: SearchQuestion) -> str:
    from sparkstore.embedded.message_search import SearchTerms, message_search  # within the limits
    from sparkstore.tables.root import open_root

    terms = SearchTerms(*question.terms)
    return json.dumps(message_search(open_root(question.root), terms)._asdict())


def _out_of_memory() -> tuple[type[BaseException], ...]:
    import duckdb

    return MemoryError, duckdb.OutOfMemoryException


def _too_much() -> errors.InvalidRequest:
    text = f"the query needs more than {MOST_MEMORY_BYTES >> 20} MiB of memory: sort and group less"
    return errors.InvalidRequest(f"{text}, or ask where the root is by sparkstore sql")


if __name__ == "__main__":
    sys.exit(main())
