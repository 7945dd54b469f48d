"""Requests that somebody typed as SQL: one SELECT over the views of the root.

What may pass is decided by `sparkstore.embedded.typed_select`, as for `sparkstore sql`: one SELECT
over the views, without files, settings or changes. A process of its own answers it
(`sparkstore.cli.queries.limited_process`), so neither the broker's loop nor another request
waits for it, and time and memory have an end.

Decision: who may ask. The views show the bodies of all messages, also of those that were consumed,
of subscriptions and of others' queues for answers. Rows are not filtered by what their reader may
`read`: sums, links and transactions tell of queues, too. So where there are permissions, it takes
one rule that allows `admin` on every address (`#`), the permission to get at such queues. And it
takes the role `operator`: a query changes nothing, but it takes memory and processors from the
broker's machine, and a `monitor` is there for figures, asked by programs again and again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys

from starlette.responses import Response

from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.operations.history_requests import flushed
from broker_shim.serve.http.refusals import HttpRefusal
from sparkstore.cli.output import one_line
from sparkstore.cli.queries import limited_process
from sparkstore.cli.queries.limited_process import LimitedQuestion
from sparkstore.control.audit import AuditEvent
from sparkstore.operations import wire

MOST_S, MOST_AT_ONCE = 30.0, 2
_COMMAND = (sys.executable, "-P", "-m", limited_process.__name__)
"""It runs in `/`: DuckDB ends a process whose folder was deleted. `-P`: no module is imported from
the folder where it runs."""
_MOST_WORDS = 2_000
"""Characters of what a process said before it failed, for the log. They come by the pipe: it may
write no file, and the broker's own standard error may be one."""
_log = logging.getLogger(__name__)


class _Running:
    """How many queries run now, of this process. Used by the thread of the HTTP port."""

    count = 0


async def ask_views(call: Call) -> Response:
    """Answer one SELECT over the views, as `sparkstore sql` does."""
    await call.check_everywhere(Act.USE_ANOTHERS, "SQL shows every queue")
    error: str | None = None
    try:
        return await _run(call)
    except BaseException as reason:
        error = str(reason) or "the port was closed"
        raise
    finally:
        peer, statement = f"http {call.visitor.access.remote}", call.body.statement
        audit = call.visitor.access.guard.audit
        audit(AuditEvent.QUERY, peer=peer, user=call.user, statement=statement, error=error)


async def _run(call: Call) -> Response:
    if _Running.count >= MOST_AT_ONCE:
        text = f"{MOST_AT_ONCE} queries run now: try again when one has ended"
        raise HttpRefusal(429, text, {"Retry-After": "1"})
    _Running.count += 1
    try:
        root, asked = await flushed(call), call.body
        question = LimitedQuestion(
            str(root.path.absolute()), asked.statement, asked.limit, MOST_S, asked.as_of
        )
        return Response(await _answered(question, call), media_type="application/json")
    finally:
        _Running.count -= 1


async def _answered(question: LimitedQuestion, call: Call) -> bytes:
    """Have a question answered; the answer as JSON, of the model `SqlAnswer`."""
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
        raise wire.error_of(json.loads(reply))
    if process.returncode == -signal.SIGALRM:
        text = f"the query took longer than {question.most_s:g} s: ask for less"
        raise HttpRefusal(400, f"{text}, or ask where the root is by sparkstore sql")
    last = one_line(words.decode(errors="replace"))[-_MOST_WORDS:] or "it said nothing"
    _log.error("the process of a query ended with code %d: %s", process.returncode, last)
    text = f"the engine failed on this query (exit code {process.returncode})"
    raise HttpRefusal(500, f"{text}: see the broker's log, or ask for less")
