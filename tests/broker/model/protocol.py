"""One router, two workers, one job of a few tokens, and the faults. `steps` is everything that can happen next.

A step without a fault is free; a fault is paid from a budget. Calls to Redis are atomic; their answer can be lost, and
an enqueue or restore can be held up in the network and arrive later. A broken link loses every frame from then on,
until one side notices. Nonces need no field: a worker has one Begin at a time, so `current` names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.model import broker_part as b
from broker.model.broker_part import Redis, Rules

FAULTS = (
    "crash",
    "pause",
    "break",
    "flush",
    "cut",
    "outage",
    "lost_reply",
    "delay",
    "lost_request",
    "cancel",
    "deadline",
    "drain",
    "router_crash",
    "forget",
    "expire",
)


class Held(NamedTuple):
    epoch: int
    stage: str
    """claimed, run, fin (waits for DoneAck), ack, rel."""
    pos: int = 0


class Worker(NamedTuple):
    name: str
    life: int = 1
    alive: bool = True
    paused: bool = False
    link: bool = True
    held: Held | None = None

    @property
    def incarnation(self) -> str:
        return f"{self.name}{self.life}"


class Op(NamedTuple):
    """What the router has to get answered before it does the next thing."""

    what: str
    """enqueue, restore, release, cancel, identity."""
    epoch: int = 0
    worker: str = ""
    top: int = 0
    crashes: int = 0
    """As they were when it was sent: only of an operation that is held up."""
    then_identity: bool = False
    """Reads the generation after it is answered: the order that misses a second loss."""


class Router(NamedTuple):
    alive: bool = True
    phase: str = "open"
    """open, ended, forgotten."""
    committed: tuple[int, ...] = ()
    """Positions of the tokens that the client got."""
    current: tuple[str, int] | None = None
    """(incarnation, epoch) of the Begin that may send tokens."""
    top: int = 0
    met: frozenset[str] = frozenset()
    """Incarnations that accepted the prompt."""
    crashes: int = 0
    generation: int = 0
    op: Op | None = Op("enqueue")


class State(NamedTuple):
    redis: Redis = Redis(owner=False, trusted=False)
    router: Router = Router()
    workers: tuple[Worker, Worker] = (Worker("A"), Worker("B"))
    away: bool = False
    """Redis cannot be reached."""
    generation: int = 0
    saved: Redis | None = None
    """What a cut falls back to."""
    net: Op | None = None
    """An operation that is held up in the network."""
    budget: tuple[tuple[str, int], ...] = ()
    died: int = 0
    """Crashes of workers that had accepted the prompt, as they truly happened."""
    wrong: str = ""
    tokens: int = 2
    """Of the whole answer."""


class Step(NamedTuple):
    name: str
    call: tuple[object, ...]
    """The script that ran and its arguments, or () when Redis was not touched."""
    after: State
    free: bool


def _pay(s: State, fault: str) -> State | None:
    """The state with one fault of a kind less, or None when there is none left."""
    for i, (kind, left) in enumerate(s.budget):
        if left and kind == fault:
            return s._replace(budget=(*s.budget[:i], (kind, left - 1), *s.budget[i + 1 :]))
    return None


def _worker(s: State, worker: Worker) -> State:
    return s._replace(workers=tuple(worker if w.name == worker.name else w for w in s.workers))  # type: ignore


def _drop(s: State, w: Worker) -> State:
    return _worker(s, w._replace(held=None))


def steps(s: State, rules: Rules) -> Iterator[Step]:
    for w in s.workers:
        yield from _worker_steps(s, w, rules)
    if s.router.alive:
        yield from _router_steps(s, rules)
    yield from _time_steps(s, rules)
    yield from _fault_steps(s, rules)


def _spoken(s: State, w: Worker, said: str, good: str) -> State:
    """A script took the word of one who does not hold the job: that must never be."""
    job = s.redis.job
    if said == good and job and job.worker != w.incarnation:
        return s._replace(wrong=f"{w.incarnation} spoke for a job that {job.worker or 'nobody'} holds")
    return s


def _worker_steps(s: State, w: Worker, rules: Rules) -> Iterator[Step]:
    if not w.alive:
        yield Step(f"{w.name} starts again", (), _hello(s, w), True)
        return
    if w.paused:
        yield Step(f"{w.name} goes on", (), _worker(s, w._replace(paused=False)), True)
        return
    if not w.link:
        stage = w.held and w.held.stage in ("run", "fin")
        held = Held(w.held.epoch, "claimed") if w.held and stage else w.held
        yield Step(f"{w.name} connects again", (), _worker(s, w._replace(link=True, held=held)), True)
    inc, held = w.incarnation, w.held
    if held is None:
        if not s.away and s.redis.job and s.redis.job.state == "queued":
            redis, said = b.claim(s.redis, inc, rules)
            got = s._replace(redis=redis)
            call = ("claim", inc)
            if said == "claimed" and redis.job:
                taken = _worker(got, w._replace(held=Held(redis.job.epoch, "claimed")))
                yield Step(f"{w.name} claims", call, taken, True)
                if paid := _pay(got, "lost_reply"):
                    yield Step(f"{w.name} claims, answer lost", call, paid, False)
            else:
                yield Step(f"{w.name} drops a dead head", call, got, True)
        return
    if held.stage in ("claimed", "run", "fin") and s.router.alive and w.link:
        yield from _stream_steps(s, w, held, rules)
    elif held.stage in ("run", "fin") and not w.link:
        yield Step(
            f"{w.name} sends into a broken link", (), _worker(s, w._replace(held=_sent(held, s.tokens, rules))), True
        )
    if s.away:
        return
    if held.stage == "ack":
        redis, said = b.ack(s.redis, held.epoch, inc, rules)
        after = _spoken(s, w, said, "ok")._replace(redis=redis)
        yield Step(f"{w.name} acks", ("ack", held.epoch, inc), _drop(after, w), True)
        if paid := _pay(after, "lost_reply"):
            yield Step(f"{w.name} acks, answer lost", ("ack", held.epoch, inc), paid, False)
    elif held.stage == "rel":
        redis, said = b.release(s.redis, held.epoch, inc, None, rules)
        after = _spoken(s, w, said, "ok")._replace(redis=redis)
        yield Step(f"{w.name} hands back", ("release", held.epoch, inc, None), _drop(after, w), True)
        if paid := _pay(after, "lost_reply"):
            yield Step(f"{w.name} hands back, answer lost", ("release", held.epoch, inc, None), paid, False)
    redis, said = b.beat(s.redis, held.epoch, inc, rules)
    if said == "unknown" and not s.router.alive and "lost_and_unreachable_drops" in rules and held.stage != "rel":
        yield Step(f"{w.name} drops what nobody knows", ("beat", held.epoch, inc), _drop(s, w), True)
    if said in ("cancelled", "fenced") or redis != s.redis:
        after = _spoken(s, w, said, "extended")._replace(redis=redis)
        stop = said in ("cancelled", "fenced")
        yield Step(f"{w.name} beats: {said}", ("beat", held.epoch, inc), _drop(after, w) if stop else after, True)


def _sent(held: Held, tokens: int, rules: Rules) -> Held:
    """The worker's side of sending its next frame."""
    if held.stage == "run" and held.pos < tokens:
        return held._replace(pos=held.pos + 1)
    return held._replace(stage="fin" if "ack_after_done_ack" in rules else "ack")


def _stream_steps(s: State, w: Worker, held: Held, rules: Rules) -> Iterator[Step]:
    r, me = s.router, (w.incarnation, held.epoch)
    if held.stage == "claimed":
        if r.phase == "ended" or (r.phase == "forgotten" and "unknown_is_done" in rules):
            yield Step(f"{w.name} begins: DONE", (), _worker(s, w._replace(held=held._replace(stage="ack"))), True)
        elif r.phase == "open" and (held.epoch > r.top or r.current == me):
            router = r._replace(current=me, top=held.epoch, met=r.met | {w.incarnation})
            run = w._replace(held=Held(held.epoch, "run", len(r.committed)))
            yield Step(f"{w.name} begins", (), _worker(s._replace(router=router), run), True)
        else:
            yield Step(f"{w.name} begins: STALE", (), _drop(s, w), True)
        return
    fenced = "fence" in rules
    if held.stage == "run" and held.pos < s.tokens:
        if r.phase == "open" and (not fenced or (r.current == me and held.pos == len(r.committed))):
            router = r._replace(committed=(*r.committed, held.pos))
            after = _worker(s._replace(router=router), w._replace(held=_sent(held, s.tokens, rules)))
            if router.committed != tuple(range(len(router.committed))):
                after = after._replace(wrong=f"the client got tokens {router.committed}")
            yield Step(f"{w.name} sends token {held.pos}", (), after, True)
        else:
            yield Step(f"{w.name} sends token {held.pos}: STALE", (), _drop(s, w), True)
        return
    if r.phase != "open" or (r.current == me and len(r.committed) == s.tokens):
        router = r
        if r.phase == "open":
            # An operation that was left unanswered is followed by a cancel, or it would make a zombie.
            router = r._replace(phase="ended", current=None, op=_farewell(r, rules))
        after = _worker(s._replace(router=router), w._replace(held=held._replace(stage="ack")))
        yield Step(f"{w.name} is done, DoneAck", (), after, True)
    else:
        yield Step(f"{w.name} is done: STALE", (), _drop(s, w), True)


def _farewell(r: Router, rules: Rules) -> Op | None:
    return Op("cancel") if r.op and "cancel_after_unanswered" in rules else None


def _hello(s: State, w: Worker) -> State:
    """A new incarnation: the router learns that the old one died, and counts it if it had the prompt."""
    r = s.router
    counts = r.alive and w.incarnation in r.met
    router = r._replace(crashes=r.crashes + counts, met=r.met - {w.incarnation})
    return _worker(s._replace(router=router), Worker(w.name, w.life + 1))


def _router_steps(s: State, rules: Rules) -> Iterator[Step]:
    r = s.router
    if r.op and not s.away:
        redis, said, call = run(s.redis, r.op._replace(top=r.top, crashes=r.crashes), rules)
        after = s._replace(redis=redis)
        yield Step(f"router: {r.op.what}: {said}", call, _answered(after, r.op, said), True)
        if paid := _pay(after, "lost_reply"):
            after_loss = paid if "retry_until_answered" in rules else paid._replace(router=r._replace(op=None))
            yield Step(f"router: {r.op.what}, answer lost", call, after_loss, False)
    if r.op and (paid := _pay(s, "lost_request")):
        after_loss = paid if "retry_until_answered" in rules else paid._replace(router=r._replace(op=None))
        yield Step(f"router: {r.op.what} lost on its way", (), after_loss, False)
    if r.op and r.op.what in ("enqueue", "restore") and s.net is None and (paid := _pay(s, "delay")):
        yield Step(
            f"router: {r.op.what} held up", (), paid._replace(net=r.op._replace(top=r.top, crashes=r.crashes)), False
        )
    if not s.away and not s.redis.owner:
        yield Step("router announces", ("announce",), s._replace(redis=s.redis._replace(owner=True)), True)
    if r.phase == "open" and r.op is None:
        yield from _router_watches(s, rules)


def _router_watches(s: State, rules: Rules) -> Iterator[Step]:
    r = s.router
    if r.current:
        incarnation, epoch = r.current
        w = next(w for w in s.workers if w.name == incarnation[0])
        serves = w.alive and w.link and w.incarnation == incarnation and w.held is not None
        if not (serves and w.held and w.held.epoch == epoch and w.held.stage in ("run", "fin")):
            router = r._replace(current=None, op=Op("release", epoch, incarnation))
            yield Step("router sees the stream end", (), s._replace(router=router), True)
    if not s.away and r.generation != s.generation and "register_again" in rules:
        before = "identity_read_before" in rules
        op = Op("restore", r.current[1], r.current[0]) if r.current else Op("enqueue")
        router = r._replace(
            op=op._replace(then_identity=not before), generation=s.generation if before else r.generation
        )
        yield Step("router sees a new generation", (), s._replace(router=router), True)


def run(redis: Redis, op: Op, rules: Rules) -> tuple[Redis, str, tuple[object, ...]]:
    if op.what == "enqueue":
        return (*b.enqueue(redis, op.top, op.crashes, rules), ("enqueue", op.top, op.crashes))
    if op.what == "restore":
        args = (op.epoch, op.worker, op.top, op.crashes)
        return (*b.restore(redis, *args, rules), ("restore", *args))
    if op.what == "release":
        words = (op.epoch, op.worker, op.crashes)
        return (*b.release(redis, *words, rules), ("release", *words))
    if op.what == "identity":
        return redis, "read", ()
    return (*b.cancel(redis, rules), ("cancel",))


def _answered(s: State, op: Op, said: str) -> State:
    r = s.router._replace(op=None)
    if op.what == "identity":
        return s._replace(router=r._replace(generation=s.generation))
    if op.then_identity and r.phase == "open":
        return s._replace(router=r._replace(op=Op("identity")))
    if r.phase == "open" and said == "gone" and op.what in ("release", "restore"):
        r = r._replace(op=Op("enqueue"))  # nobody has it any more
    if r.phase == "open" and said == "expired":
        r = r._replace(phase="ended", current=None)
    return s._replace(router=r)


def _time_steps(s: State, rules: Rules) -> Iterator[Step]:
    if s.away:
        yield Step("Redis is back", (), s._replace(away=False), True)
    job = s.redis.job
    if job and job.lease == "held":
        w = next(w for w in s.workers if w.name == job.worker[0])
        beats = w.alive and not w.paused and w.incarnation == job.worker and not s.away and w.held is not None
        if not (beats and w.held and w.held.epoch == job.hold):
            lapsed = s._replace(redis=s.redis._replace(job=job._replace(lease="lapsed")))
            yield Step("the lease lapses", ("lapse",), lapsed, True)
    if s.redis.owner and not s.router.alive and not s.away:
        yield Step("the owner's entry lapses", ("owner_lapses",), s._replace(redis=s.redis._replace(owner=False)), True)
    if not s.away:
        redis, said = b.reap(s.redis, rules)
        if said != "nothing":
            yield Step(f"reap: {said}", ("reap",), s._replace(redis=redis), True)
        if not s.redis.trusted and (s.redis.owner or not s.router.alive):
            yield Step("a ttl of announcements", ("trust",), s._replace(redis=s.redis._replace(trusted=True)), True)
        if s.net:
            redis, said, call = run(s.redis, s.net, rules)
            after = s._replace(redis=redis, net=None)
            over = s.router.alive and s.router.phase != "open" and s.router.op is None
            # Where the broker lost the mark of the end too, the next claimer hears DONE and acks.
            if redis.live and not s.redis.live and over and s.generation == 0:
                after = after._replace(wrong="a late operation made a zombie of a job that had ended")
            yield Step(f"a late {s.net.what} arrives: {said}", call, after, True)
    if s.redis.late and s.router.alive and s.router.phase == "open":
        r = s.router
        router = r._replace(phase="ended", current=None, op=Op("cancel"))
        yield Step("router: deadline", (), s._replace(router=router), True)


def _fault_steps(s: State, rules: Rules) -> Iterator[Step]:
    r = s.router
    for w in s.workers:
        if w.alive and (paid := _pay(s, "crash")):
            died = s.died + (w.incarnation in r.met)
            after = _worker(paid._replace(died=died), w._replace(alive=False, held=None, link=False, paused=False))
            yield Step(f"{w.name} crashes", (), after, False)
        if w.alive and w.held and not w.paused and (paid := _pay(s, "pause")):
            yield Step(f"{w.name} pauses", (), _worker(paid, w._replace(paused=True)), False)
        if w.alive and w.link and w.held and (paid := _pay(s, "break")):
            yield Step(f"{w.name}'s link breaks", (), _worker(paid, w._replace(link=False)), False)
        if w.alive and w.held and w.held.stage in ("claimed", "run") and (paid := _pay(s, "drain")):
            yield Step(f"{w.name} drains", (), _worker(paid, w._replace(held=w.held._replace(stage="rel"))), False)
    new = s.generation + 1
    if not s.away:
        if paid := _pay(s, "flush"):
            redis = Redis(owner=False, trusted=False, late=s.redis.late)
            yield Step("flush", ("flush",), paid._replace(redis=redis, generation=new), False)
        if s.saved is None and _pay(s, "cut"):
            yield Step("the disk has this much", ("save",), s._replace(saved=s.redis), False)
        if s.saved is not None and s.saved != s.redis and (paid := _pay(s, "cut")):
            redis = s.saved._replace(trusted=False, late=s.redis.late)
            yield Step("the tail is cut", ("cut",), paid._replace(redis=redis, saved=None, generation=new), False)
        if paid := _pay(s, "outage"):
            redis = s.redis._replace(owner=False, trusted=False)
            yield Step("outage", ("outage",), paid._replace(redis=redis, away=True), False)
    if s.redis.live and "no_expiry_while_live" not in rules and (paid := _pay(s, "expire")):
        yield Step("the job expires", (), paid._replace(redis=s.redis._replace(job=None, account=0)), False)
    if not s.redis.late and (paid := _pay(s, "deadline")):
        yield Step("the deadline passes", ("deadline",), paid._replace(redis=s.redis._replace(late=True)), False)
    if not r.alive:
        return
    if r.phase == "open" and (paid := _pay(s, "cancel")):
        op = Op("cancel") if r.op is None else _farewell(r, rules)
        router = r._replace(phase="ended", current=None, op=op)
        yield Step("the client cancels", (), paid._replace(router=router), False)
    if paid := _pay(s, "router_crash"):
        yield Step("router crashes", (), paid._replace(router=Router(alive=False, phase="ended", op=None)), False)
    if r.phase == "ended" and r.op is None and (paid := _pay(s, "forget")):
        yield Step("router forgets", (), paid._replace(router=r._replace(phase="forgotten")), False)
