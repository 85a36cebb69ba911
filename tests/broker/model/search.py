"""Breadth-first search of the model: is a wrong state reachable, or one from which no good end can be reached?"""

from __future__ import annotations

from typing import NamedTuple

from broker.model.broker_part import RULES, Rules
from broker.model.protocol import State, steps

ROUNDS = 7
"""More claims than any two faults explain."""


class Result(NamedTuple):
    hole: str
    """"" when there is none."""
    path: list[str]
    states: int


def wrong(s: State) -> str:
    """What must never be, in words, or ""."""
    r, job = s.router, s.redis.job
    if s.wrong:
        return s.wrong
    if s.redis.account != s.redis.live:
        return f"the tenant's account says {s.redis.account} with {int(s.redis.live)} jobs live"
    if job and r.alive and r.phase == "open":
        if job.state == "done":
            return "acked while the client still waits"
        if job.state in ("cancelled", "lapsed"):
            return f"{job.state} although its router lives and streams it"
    if job and r.alive and s.redis.live and job.crashes > s.died:
        return f"{job.crashes} crashes counted, {s.died} happened"
    if job and job.epoch > ROUNDS:
        return f"claimed {ROUNDS} times: it goes round queue, lease and reap"
    return ""


def good(s: State) -> bool:
    """Everything has ended and nobody holds anything."""
    quiet = not s.redis.live and s.net is None and all(w.held is None for w in s.workers)
    r = s.router
    return quiet and (not r.alive or (r.phase != "open" and r.op is None))


def start(faults: dict[str, int], tokens: int = 2) -> State:
    return State(budget=tuple(sorted(faults.items())), tokens=tokens)


def search(faults: dict[str, int], rules: Rules = RULES, tokens: int = 2, limit: int = 2_000_000) -> Result:
    """Looks at every state that `faults` (kind -> how many) can lead to. Raises RuntimeError beyond `limit`."""
    states = [start(faults, tokens)]
    number = {states[0]: 0}
    came: list[tuple[int, str]] = [(-1, "")]
    back: list[list[int]] = [[]]
    ends: list[int] = []
    for i, state in enumerate(states):  # grows while it is read: breadth first
        if why := wrong(state):
            return Result(why, _path(came, i), len(states))
        if good(state):
            ends.append(i)
        for name, _, after, free in steps(state, rules):
            j = number.setdefault(after, len(states))
            if j == len(states):
                if j >= limit:
                    raise RuntimeError(f"more than {limit} states with {faults}")
                states.append(after)
                came.append((i, name))
                back.append([])
            if free:
                back[j].append(i)
    saved = set(ends)
    while ends:
        for i in back[ends.pop()]:
            if i not in saved:
                saved.add(i)
                ends.append(i)
    stuck = next((i for i in range(len(states)) if i not in saved), None)
    if stuck is not None:
        return Result("from here no end can be reached", _path(came, stuck), len(states))
    return Result("", [], len(states))


def _path(came: list[tuple[int, str]], i: int) -> list[str]:
    names: list[str] = []
    while came[i][0] >= 0:
        i, name = came[i]
        names.append(name)
    return names[::-1]
