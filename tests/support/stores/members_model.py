"""Members of a store service as a small machine of states, looked at in all interleavings. Pure.

Two members, some messages, one request of each member under way at a time; each member may crash
once, leave a process behind that does not know it yet (a zombie), and come back as a new
incarnation; once a connection breaks, or the service is killed and comes back. Time is not told:
the grace of a member that is not connected may end at any moment.

What is checked in every state is what a broker and its clients rely on. What *should* be true is
kept beside what is (`rightful`), by rules that know no faults.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

NOBODY, GONE = -1, -2
ACQUIRE, DEQUEUE, RELEASE = "acquire", "dequeue", "release"


class Fault(StrEnum):
    """What may be broken in the service."""

    NONE = "none"
    FENCE_REMOVED = "requests of a stale incarnation are decided"
    RELEASED_TWICE = "what a lost member held is released once more when it comes back"
    ANSWER_FORGOTTEN = "a request that comes again is decided again"
    NUMBERS_FORGOTTEN = "a restarted service does not know which requests are decided"


class Request(NamedTuple):
    """What a member asks."""

    number: int
    what: str
    message: int


class Member(NamedTuple):
    """A member's process, and the one before it if that lives on."""

    is_up: bool = True
    is_connected: bool = True
    incarnation: int = 1
    next_request: int = 1
    asked: Request | None = None
    answer: tuple[int, bool] | None = None
    held: frozenset[int] = frozenset()
    was_lost: bool = False
    zombie: tuple[int, Request] | None = None
    requests_left: int = 0
    crashes_left: int = 0


class Message(NamedTuple):
    """A message at the service.

    Attributes:
        holder: Who has acquired it.
        rightful: Who should have.
        miscounted: Its delivery count, less the deliveries that failed.
        settled: How often it was taken off its queue.
    """

    holder: int = NOBODY
    rightful: int = NOBODY
    miscounted: int = 0
    settled: int = 0


class Known(NamedTuple):
    """What the service has of a member, durably; `remembered` only a faulty one has."""

    incarnation: int = 1
    last_request: int = 0
    was_done: bool = False
    remembered: frozenset[int] = frozenset()


class State(NamedTuple):
    """All of it."""

    members: tuple[Member, ...]
    messages: tuple[Message, ...]
    known: tuple[Known, ...]
    breaks_left: int = 1


@dataclass(frozen=True)
class Explored:
    """What a search found: states seen, and what was broken first, with the way there."""

    states: int
    broken: str
    way: tuple[str, ...]


def explore(
    fault: Fault = Fault.NONE,
    *,
    messages: int = 3,
    requests: int = 2,
    crashes: tuple[int, int] = (1, 1),
    most: int = 3_000_000,
) -> Explored:
    """All states that can be reached, breadth first; ends at the first that breaks a promise.

    Args:
        fault: What is broken in the service.
        messages: How many wait at the start.
        requests: Of each member, over all its incarnations: else it acquires and gives back for
            ever.
        crashes: How often each member may crash.
        most: More states than these are an error.
    """
    members = tuple(Member(requests_left=requests, crashes_left=each) for each in crashes)
    start = State(members, (Message(),) * messages, (Known(), Known()))
    before: dict[State, tuple[State, str] | None] = {start: None}
    line = deque([start])
    while line:
        state = line.popleft()
        broken = _broken(state)
        if broken:
            return Explored(len(before), broken, _way(before, state))
        for what, after in _steps(state, fault):
            if after not in before:
                before[after] = (state, what)
                line.append(after)
        assert len(before) <= most, "the model is too large"
    return Explored(len(before), "", ())


def _way(before: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    way: list[str] = []
    there = before[state]
    while there is not None:
        state, what = there
        way.append(what)
        there = before[state]
    return tuple(reversed(way))


def _broken(state: State) -> str:
    """Which promise a state breaks; empty if none."""
    for number, message in enumerate(state.messages):
        if message.settled > 1:
            return f"message {number} was settled twice"
        if message.holder != message.rightful:
            return f"message {number} is held by {message.holder}, rightfully by {message.rightful}"
        if message.miscounted:
            return f"message {number} counts {message.miscounted} failed deliveries too many"
    for name, member in enumerate(state.members):
        is_at_rest = member.is_up and member.is_connected and not member.was_lost
        if is_at_rest and member.asked is None:
            there = {i for i, each in enumerate(state.messages) if each.holder == name}
            if member.held != there:
                return f"member {name} knows of {sorted(member.held)}, and holds {sorted(there)}"
    return ""


def _steps(state: State, fault: Fault) -> Iterator[tuple[str, State]]:
    for name in range(len(state.members)):
        yield from _member_steps(state, name, fault)
        yield from _service_steps(state, name, fault)
    if state.breaks_left:
        yield "the service is killed and starts", _restarted(state, fault)


def _member_steps(state: State, name: int, fault: Fault) -> Iterator[tuple[str, State]]:
    member = state.members[name]
    if member.is_up and member.asked is None and member.requests_left:
        for what, message in _wishes(state, member):
            asked = Request(member.next_request, what, message)
            changed = member._replace(
                asked=asked,
                next_request=member.next_request + 1,
                requests_left=member.requests_left - 1,
            )
            yield f"{name} asks to {what} {message}", _with(state, name, changed)
    if member.answer is not None and member.is_up and member.is_connected:
        yield f"{name} hears its answer", _with(state, name, _heard(member))
    if member.is_up and member.crashes_left:
        zombie = None if member.asked is None else (member.incarnation, member.asked)
        down = Member(
            is_up=False,
            is_connected=False,
            incarnation=member.incarnation,
            requests_left=member.requests_left,
        )
        yield f"{name} crashes", _gone(_with(state, name, down), name, fault)
        if zombie is not None:
            down = down._replace(zombie=zombie)
            yield f"{name} hangs, and is replaced", _gone(_with(state, name, down), name, fault)
    if state.breaks_left and member.is_up and member.is_connected:
        cut = member._replace(is_connected=False, answer=None)
        after = _with(state, name, cut)._replace(breaks_left=0)
        yield f"the connection of {name} breaks", _gone(after, name, fault)


def _wishes(state: State, member: Member) -> Iterator[tuple[str, int]]:
    """The first message that it does not hold; or what it holds, to be done with or given back."""
    free = [i for i, each in enumerate(state.messages) if each.holder != GONE]
    wanted = [each for each in free if each not in member.held]
    if wanted and len(member.held) < 2:
        yield ACQUIRE, wanted[0]
    if member.held:
        first = min(member.held)
        yield DEQUEUE, first
        yield RELEASE, first


def _heard(member: Member) -> Member:
    assert member.answer is not None
    assert member.asked is not None
    _number, was_done = member.answer
    held = member.held
    if member.asked.what == ACQUIRE and was_done:
        held |= {member.asked.message}
    elif member.asked.what != ACQUIRE:  # done; or refused, so that it is not its any more
        held -= {member.asked.message}
    return member._replace(asked=None, answer=None, held=held)


def _service_steps(state: State, name: int, fault: Fault) -> Iterator[tuple[str, State]]:
    member, known = state.members[name], state.known[name]
    is_heard = member.is_up and member.is_connected and member.answer is None
    if is_heard and member.asked is not None:
        yield f"{name}'s request is decided", _decided(state, name, member.asked, fault)
    if not member.is_up or not member.is_connected:
        yield f"{name}'s grace ends", _lost(state, name)
    if not member.is_up:
        yield f"{name} starts anew", _incarnated(state, name, fault)
    elif not member.is_connected and known.incarnation == member.incarnation:
        again = member._replace(is_connected=True)
        yield f"{name} connects again", _came_back(_with(state, name, again), name, fault)
    if member.zombie is not None:
        incarnation, asked = member.zombie
        after = _with(state, name, member._replace(zombie=None))
        if incarnation == known.incarnation or fault is Fault.FENCE_REMOVED:
            # Until its successor says hello it is simply a member that is slow.
            _done, after = _carried_out(after, name, asked, fault)
        yield f"the process before {name} is heard", after


def _decided(state: State, name: int, asked: Request, fault: Fault) -> State:
    was_done, after = _carried_out(state, name, asked, fault)
    member = after.members[name]._replace(answer=(asked.number, was_done))
    return _with(after, name, member)


def _carried_out(state: State, name: int, asked: Request, fault: Fault) -> tuple[bool, State]:
    """Decide a request, or say again what was decided."""
    known = state.known[name]
    if asked.number <= known.last_request and fault is not Fault.ANSWER_FORGOTTEN:
        return known.was_done, state
    message = state.messages[asked.message]
    was_done = message.holder == (NOBODY if asked.what == ACQUIRE else name)
    if was_done:
        holder = {ACQUIRE: name, DEQUEUE: GONE, RELEASE: NOBODY}[asked.what]
        settled = message.settled + (asked.what == DEQUEUE)
        message = message._replace(holder=holder, rightful=holder, settled=settled)
    numbered = known._replace(last_request=max(known.last_request, asked.number), was_done=was_done)
    return was_done, _with_message(_with_known(state, name, numbered), asked.message, message)


def _gone(state: State, name: int, fault: Fault) -> State:
    """A faulty service notes what a member has that goes."""
    if fault is not Fault.RELEASED_TWICE:
        return state
    held = frozenset(i for i, each in enumerate(state.messages) if each.holder == name)
    return _with_known(state, name, state.known[name]._replace(remembered=held))


def _lost(state: State, name: int) -> State:
    """What it holds waits again, and failed."""
    for number, message in enumerate(state.messages):
        if message.holder == name:
            back = Message(NOBODY, NOBODY, message.miscounted, message.settled)
            state = _with_message(state, number, back)
    return _with(state, name, state.members[name]._replace(was_lost=True))


def _came_back(state: State, name: int, fault: Fault) -> State:
    known = state.known[name]
    if fault is Fault.RELEASED_TWICE and state.members[name].was_lost:
        for number in known.remembered:
            message = state.messages[number]
            if message.holder != GONE:
                again = message._replace(holder=NOBODY, miscounted=message.miscounted + 1)
                state = _with_message(state, number, again)
    return state


def _incarnated(state: State, name: int, fault: Fault) -> State:
    """A new process says hello: what the one before it held waits again."""
    state = _came_back(state, name, fault)
    state = _lost(state, name)
    known = state.known[name]
    incarnation = known.incarnation + 1
    state = _with_known(state, name, known._replace(incarnation=incarnation))
    member = Member(
        incarnation=incarnation,
        next_request=known.last_request + 1,
        zombie=state.members[name].zombie,
        requests_left=state.members[name].requests_left,
    )
    return _with(state, name, member)


def _restarted(state: State, fault: Fault) -> State:
    """What is durable is there; every connection is lost, with the answers on it."""
    members = tuple(
        each._replace(is_connected=False, answer=None) if each.is_up else each
        for each in state.members
    )
    after = state._replace(members=members, breaks_left=0)
    for name in range(len(members)):
        after = _gone(after, name, fault)
        if fault is Fault.NUMBERS_FORGOTTEN:
            after = _with_known(after, name, after.known[name]._replace(last_request=0))
    return after


def _with(state: State, name: int, member: Member) -> State:
    members = (*state.members[:name], member, *state.members[name + 1 :])
    return state._replace(members=members)


def _with_known(state: State, name: int, known: Known) -> State:
    return state._replace(known=(*state.known[:name], known, *state.known[name + 1 :]))


def _with_message(state: State, number: int, message: Message) -> State:
    messages = (*state.messages[:number], message, *state.messages[number + 1 :])
    return state._replace(messages=messages)
