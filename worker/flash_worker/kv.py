"""The page pool of the KV cache: who owns which page, and which pages hold a known prefix. Pure Python.

Every page is in exactly one place, and `account()` shows that the places sum to the pool:

    free        holds nothing that is known
    cached      holds a published prefix page that nobody uses; taken when pages run out, least recently used first
    held        used by requests (counted: a prefix page may have several), or pinned
    in flight   given back, but a step that has not settled may still read or write it

Block tables only grow, and only full pages whose step has settled are shared, so a shared page is never written and
nothing is ever copied on write.
"""

from __future__ import annotations

import os
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

Digest = Callable[[bytes, bytes, bytes], bytes]
"""(domain, the parent page's key, the page's tokens) -> the page's key."""

PINNED = "\0pinned"
"""The domain of pinned prefixes, which every other domain may read."""


class OutOfPages(RuntimeError):
    """More pages were asked for than are available."""


class AccountBroken(RuntimeError):
    """A page is in no place, or in two: a bug. The message has the account."""


@dataclass(frozen=True, slots=True)
class Account:
    """Pages by place. free + cached + held + in_flight = total."""

    free: int
    cached: int
    held: int
    in_flight: int
    total: int


class Entry:
    """A published page: the tokens it holds, and the page before it."""

    __slots__ = ("alive", "domain", "key", "page", "parent", "tokens")

    def __init__(self, key: bytes, page: int, tokens: tuple[int, ...], parent: Entry | None, domain: str) -> None:
        self.key = key
        self.page = page
        self.tokens = tokens
        self.parent = parent
        self.domain = domain
        self.alive = True

    def is_for(self, domain: str, parent: Entry | None, tokens: tuple[int, ...]) -> bool:
        """The hash only finds a candidate; this decides. So a collision never shares a page."""
        return self.tokens == tokens and self.parent is parent and self.domain == domain


class PagePool:
    """`pages` pages of `block_size` tokens."""

    def __init__(self, pages: int, block_size: int, *, prefix_cache: bool = True, digest: Digest | None = None) -> None:
        """digest: replaces the hash of the prefix table. The default is keyed at random for each pool, so that
        nobody outside can make two prefixes collide; and tokens are compared besides."""
        if pages < 1 or block_size < 1:
            raise ValueError(f"a pool needs at least one page of at least one token, not {pages} of {block_size}")
        self.block_size = block_size
        self.total = pages
        self.pinned = 0
        """Pages of those held that are pinned."""
        self._prefix_cache = prefix_cache
        self._digest = digest or _keyed_digest(os.urandom(16))
        self._free = list(range(pages - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._in_flight: dict[int, int] = {}
        self._by_step: dict[int, list[int]] = {}
        self._refs = [0] * pages
        self._busy_until = [0] * pages
        """The last step that a former holder had in flight when it let go of the page."""
        self._settled = 0
        self._held = 0
        self._table: dict[bytes, Entry] = {}
        self._entry_of: dict[int, Entry] = {}
        self._pins: list[Entry] = []

    @property
    def available(self) -> int:
        """Pages that `allocate` can give now."""
        return len(self._free) + len(self._cached)

    @property
    def returning(self) -> int:
        """Pages that become available when the steps in flight have settled."""
        return len(self._in_flight)

    @property
    def usable(self) -> int:
        """Pages that one request alone could get."""
        return self.total - self.pinned

    def pages(self, tokens: int) -> int:
        """Pages that hold this many tokens."""
        return -(-tokens // self.block_size)

    # Holding

    def allocate(self, count: int) -> list[int]:
        """Take pages, evicting cached ones where needed. Raises OutOfPages, and then takes none."""
        if count > self.available:
            raise OutOfPages(f"{count} pages wanted, {self.available} available of {self.total}")
        taken = []
        for _ in range(count):
            if self._free:
                page = self._free.pop()
            else:
                page, _ = self._cached.popitem(last=False)
                self._unpublish(self._entry_of[page])
            self._refs[page] = 1
            taken.append(page)
        self._held += count
        return taken

    def take(self, entries: Iterable[Entry]) -> list[int]:
        """Hold published pages once more."""
        taken = []
        for entry in entries:
            page = entry.page
            if self._refs[page] == 0:
                # A page in flight may be taken: it is published, so no step writes it.
                if page in self._cached:
                    del self._cached[page]
                else:
                    self._by_step[self._in_flight.pop(page)].remove(page)
                self._held += 1
            self._refs[page] += 1
            taken.append(page)
        return taken

    def idle(self, entries: Iterable[Entry]) -> int:
        """How many of these pages are now available, so that taking them leaves fewer to allocate."""
        return sum(entry.page in self._cached for entry in entries)

    def release(self, pages: Sequence[int], in_flight_until: int | None = None) -> None:
        """Give back a request's pages. in_flight_until: a step, not settled yet, that may touch them."""
        # Tails first: what is released first is evicted first, and a prefix is worth more than what follows it.
        for page in reversed(pages):
            if self._refs[page] < 1:
                raise AccountBroken(f"page {page} was given back by someone who did not hold it: {self.account()}")
            self._refs[page] -= 1
            # Kept for shared pages too: whoever lets go of the page last need not be the one whose step reads it.
            self._busy_until[page] = max(self._busy_until[page], in_flight_until or 0)
            if self._refs[page]:
                continue
            self._held -= 1
            if (until := self._busy_until[page]) > self._settled:
                self._in_flight[page] = until
                self._by_step.setdefault(until, []).append(page)
            else:
                self._put_back(page)

    def settled(self, step: int) -> None:
        """A step has settled, as all before it: what was in flight until then can be used again."""
        self._settled = step
        for page in self._by_step.pop(step, ()):
            del self._in_flight[page]
            self._put_back(page)

    def _put_back(self, page: int) -> None:
        if page in self._entry_of:
            self._cached[page] = None
        else:
            self._free.append(page)

    # Prefixes

    def match(self, tokens: Sequence[int], domain: str) -> list[Entry]:
        """The published pages that hold the longest prefix of `tokens`, always leaving at least the last token to
        be computed, since its logits are wanted. Takes none of them."""
        found: list[Entry] = []
        parent: Entry | None = None
        for i in range((len(tokens) - 1) // self.block_size):
            block = tuple(tokens[i * self.block_size : (i + 1) * self.block_size])
            entry = None
            if self._pins and (parent is None or parent.domain == PINNED):
                entry = self._find(PINNED, parent, block)
            if entry is None and self._prefix_cache:
                entry = self._find(domain, parent, block)
            if entry is None:
                break
            found.append(entry)
            parent = entry
        return found

    def publish(self, page: int, tokens: Sequence[int], parent: Entry | None, domain: str) -> Entry | None:
        """Offer a full page, held and settled, to later requests of its domain.

        parent: the entry of the page before. Returns the entry under which the next page can be published, or None
        where the chain ends: the cache is off, the parent was evicted, or the key is taken by other tokens.
        """
        if not (self._prefix_cache or domain == PINNED) or (parent is not None and not parent.alive):
            return None
        block = tuple(tokens)
        if domain != PINNED and self._pins and (parent is None or parent.domain == PINNED):
            pinned = self._find(PINNED, parent, block)
            if pinned is not None:
                return pinned
        key = self._key(domain, parent, block)
        there = self._table.get(key)
        if there is not None:
            if there.is_for(domain, parent, block):
                return there
            if there.parent is None or there.parent.alive:
                return None
            self._forget(there)  # Its parent is gone, so nobody can reach it.
        if page in self._entry_of:
            return None  # Published already, in another chain: a page has one name.
        entry = Entry(key, page, block, parent, domain)
        self._table[key] = self._entry_of[page] = entry
        return entry

    def distrust(self, pages: Sequence[int]) -> None:
        """Offer these pages to nobody any more. Pinned ones stay."""
        for page in pages:
            entry = self._entry_of.get(page)
            if entry is not None and entry not in self._pins:
                self._forget(entry)

    def pin(self, entries: Sequence[Entry]) -> None:
        """Hold these pages for ever. Raises ValueError where they would be over half of the pool."""
        fresh = [entry for entry in entries if entry not in self._pins]
        if (self.pinned + len(fresh)) * 2 > self.total:
            raise ValueError(self.pin_refusal(len(fresh)))
        self.take(fresh)
        self._pins += fresh
        self.pinned += len(fresh)

    def pin_refusal(self, pages: int) -> str:
        return (
            f"pinned prefixes may take half of the KV pool: {self.pinned * self.block_size} tokens are pinned,"
            f" {pages * self.block_size} more are wanted, the pool has {self.total * self.block_size}"
        )

    def _find(self, domain: str, parent: Entry | None, block: tuple[int, ...]) -> Entry | None:
        entry = self._table.get(self._key(domain, parent, block))
        return entry if entry is not None and entry.is_for(domain, parent, block) else None

    def _key(self, domain: str, parent: Entry | None, block: tuple[int, ...]) -> bytes:
        return self._digest(domain.encode(), parent.key if parent else b"", array("q", block).tobytes())

    def _unpublish(self, entry: Entry) -> None:
        entry.alive = False
        del self._table[entry.key]
        del self._entry_of[entry.page]

    def _forget(self, entry: Entry) -> None:
        """Unpublish a page wherever it is."""
        self._unpublish(entry)
        if entry.page in self._cached:
            del self._cached[entry.page]
            self._free.append(entry.page)

    # The account

    def account(self) -> Account:
        """Pages by place. Raises AccountBroken when they do not sum."""
        account = Account(len(self._free), len(self._cached), self._held, len(self._in_flight), self.total)
        if account.free + account.cached + account.held + account.in_flight != self.total:
            raise AccountBroken(f"the pool's pages do not sum: {account}")
        return account

    def check(self, holders: Iterable[Sequence[int]]) -> Account:
        """Look at every page: it must be in one place, and held exactly by these block tables and the pins.

        Takes time with the pool's size. Raises AccountBroken.
        """
        account = self.account()
        refs = [0] * self.total
        for pages in holders:
            for page in pages:
                refs[page] += 1
        for entry in self._pins:
            refs[entry.page] += 1
        if refs != self._refs:
            wrong = [(i, self._refs[i], refs[i]) for i in range(self.total) if refs[i] != self._refs[i]]
            raise AccountBroken(f"pages with (page, references counted, references there are): {wrong[:8]}, {account}")
        places = [*self._free, *self._cached, *self._in_flight, *(p for p in range(self.total) if refs[p])]
        if sorted(places) != list(range(self.total)):
            raise AccountBroken(f"a page is in two places or in none: {account}")
        if any(page not in self._entry_of for page in self._cached) or any(p in self._entry_of for p in self._free):
            raise AccountBroken(f"a cached page is not published, or a free one is: {account}")
        if any(self._table.get(e.key) is not e or e.page != page or not e.alive for page, e in self._entry_of.items()):
            raise AccountBroken(f"the prefix table and the published pages differ: {account}")
        return account


def _keyed_digest(key: bytes) -> Digest:
    def digest(domain: bytes, parent: bytes, tokens: bytes) -> bytes:
        state = blake2b(digest_size=16, key=key)
        state.update(len(domain).to_bytes(4, "little") + domain + len(parent).to_bytes(1, "little") + parent + tokens)
        return state.digest()

    return digest
