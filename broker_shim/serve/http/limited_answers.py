"""Have a question about a root answered by a process of its own, and wait for it.

`sparkstore.cli.queries.limited_process` is that process. Neither the broker's loop nor another
request waits for it; time and memory have an end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.refusals import HttpRefusal
from sparkstore.cli.output import one_line
from sparkstore.cli.queries import limited_process
from sparkstore.cli.queries.limited_process import Question
from sparkstore.errors import error_of

MOST_S, PATIENCE_S = 30.0, 40.0
_COMMAND = (sys.executable, "-P", "-m", limited_process.__name__)
"""It runs in `/`: DuckDB ends a process whose folder was deleted. `-P`: no module is imported from
the folder where it runs."""
_MOST_WORDS = 2_000
"""Characters of what a process said before it failed, for the log. They come by the pipe: it may
write no file, and the broker's own standard error may be one."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def history_turn(call: Call) -> AsyncIterator[None]:
    """Wait until no other process answers those who look; `sql` has turns of its own.

    Raises:
        HttpRefusal: Others take too long.
    """
    turn = call.served.series.turn
    try:
        await asyncio.wait_for(turn.acquire(), PATIENCE_S)
    except TimeoutError as reason:
        text = "tables are read for another request now: try again when it has ended"
        raise HttpRefusal(429, text, {"Retry-After": "1"}) from reason
    try:
        yield
    finally:
        turn.release()


async def limited_answer(question: Question, call: Call) -> bytes:
    """Return the answer to a question, as JSON; the process ends, too, when the asker hangs up."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/"
    )
    answer = process.communicate(json.dumps(question._asdict()).encode())
    waits = asyncio.ensure_future(answer), asyncio.ensure_future(call.gone())
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waits[1].cancel()
        if not waits[0].done():  # nobody waits for the answer any more
            process.kill()
        reply, words = await waits[0]
    if process.returncode == 0:
        return reply
    if process.returncode == limited_process.FAILED and reply:
        answer = json.loads(reply)
        raise error_of(answer.get("error"), answer.get("message"))
    if process.returncode == -signal.SIGALRM:
        text = f"the query took longer than {question.most_s:g} s: ask for less"
        raise HttpRefusal(400, f"{text}, or ask where the root is by sparkstore sql")
    last = one_line(words.decode(errors="replace"))[-_MOST_WORDS:] or "it said nothing"
    _log.error("the process of a query ended with code %d: %s", process.returncode, last)
    text = f"the engine failed on this query (exit code {process.returncode})"
    raise HttpRefusal(500, f"{text}: see the broker's log, or ask for less")
