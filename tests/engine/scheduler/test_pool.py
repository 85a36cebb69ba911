"""The page pool by itself."""

from __future__ import annotations

import pytest
from flash_worker.kv import AccountBroken, OutOfPages, PagePool


def fill(pool: PagePool, tokens: list[int], domain: str = "") -> list[int]:
    """Hold and publish the pages of a prefix."""
    pages = pool.allocate(len(tokens) // pool.block_size)
    chain = None
    for i, page in enumerate(pages):
        chain = pool.publish(page, tokens[i * pool.block_size : (i + 1) * pool.block_size], chain, domain)
    return pages


def places(pool: PagePool) -> tuple[int, int, int, int]:
    account = pool.account()
    return account.free, account.cached, account.held, account.in_flight


def test_a_page_is_in_one_place_and_the_places_sum():
    pool = PagePool(8, 4)
    assert places(pool) == (8, 0, 0, 0)
    pages = fill(pool, list(range(12)))
    extra = pool.allocate(1)
    assert places(pool) == (4, 0, 4, 0)
    pool.release(pages + extra, in_flight_until=3)
    assert places(pool) == (4, 0, 0, 4)
    assert pool.available == 4
    assert pool.returning == 4
    pool.settled(2)
    assert places(pool) == (4, 0, 0, 4)
    pool.settled(3)
    assert places(pool) == (5, 3, 0, 0)
    pool.check([])


def test_too_many_pages_are_refused_and_none_is_taken():
    pool = PagePool(4, 4)
    pool.allocate(3)
    with pytest.raises(OutOfPages, match="2 pages wanted, 1 available of 4"):
        pool.allocate(2)
    assert places(pool) == (1, 0, 3, 0)


def test_a_page_given_back_twice_is_found():
    pool = PagePool(4, 4)
    pages = pool.allocate(2)
    pool.release(pages)
    with pytest.raises(AccountBroken, match="did not hold"):
        pool.release(pages)


def test_check_finds_a_page_that_its_holder_lost():
    pool = PagePool(4, 4)
    pages = pool.allocate(2)
    pool.check([pages])
    with pytest.raises(AccountBroken, match="references"):
        pool.check([pages[:1]])
    pool._free.pop()
    with pytest.raises(AccountBroken, match="do not sum"):
        pool.check([pages])


def test_tails_are_evicted_before_the_prefixes_that_lead_to_them():
    pool = PagePool(4, 4)
    tokens = list(range(16))
    pool.release(fill(pool, tokens))
    assert len(pool.match([*tokens, 99], "")) == 4
    pool.allocate(1)
    assert len(pool.match([*tokens, 99], "")) == 3
    pool.allocate(2)
    assert len(pool.match([*tokens, 99], "")) == 1


def test_the_least_recently_used_prefix_is_evicted_first():
    pool = PagePool(4, 4)
    old, new = list(range(8)), list(range(20, 28))
    pool.release(fill(pool, old))
    pool.release(fill(pool, new))
    pool.release(pool.take(pool.match([*old, 99], "")))  # Used again: now the younger.
    pool.allocate(2)
    assert len(pool.match([*old, 99], "")) == 2
    assert not pool.match([*new, 99], "")


def test_the_last_token_is_never_taken_from_the_cache():
    pool = PagePool(4, 4)
    pool.release(fill(pool, list(range(8))))
    assert len(pool.match(list(range(8)), "")) == 1
    assert len(pool.match(list(range(9)), "")) == 2


def test_a_shared_page_stays_until_its_last_holder_is_gone():
    pool = PagePool(4, 4)
    first = fill(pool, list(range(8)))
    second = pool.take(pool.match(list(range(9)), ""))
    assert first == second
    pool.release(first)
    assert places(pool) == (2, 0, 2, 0)
    pool.release(second)
    assert places(pool) == (2, 2, 0, 0)


def test_a_published_page_in_flight_can_be_taken_again():
    pool = PagePool(4, 4)
    pool.release(fill(pool, list(range(8))), in_flight_until=1)
    taken = pool.take(pool.match(list(range(9)), ""))
    assert places(pool) == (2, 0, 2, 0)
    pool.settled(1)
    assert places(pool) == (2, 0, 2, 0)
    pool.check([taken])


def test_a_page_stays_in_flight_whoever_lets_go_of_it_last():
    pool = PagePool(2, 4)
    reader = fill(pool, list(range(8)))
    pool.settled(1)
    other = pool.take(pool.match(list(range(9)), ""))
    pool.release(reader, in_flight_until=2)  # Shared: still held by the other.
    pool.release(other)
    assert places(pool) == (0, 0, 0, 2), "step 2 reads it"
    again = pool.take(pool.match(list(range(9)), ""))  # Taken back while in flight, and let go of again.
    pool.release(again)
    assert places(pool) == (0, 0, 0, 2)
    assert pool.available == 0
    pool.settled(2)
    assert places(pool) == (0, 2, 0, 0)
    pool.check([])


def test_domains_do_not_see_each_other():
    pool = PagePool(8, 4)
    tokens = list(range(8))
    pool.release(fill(pool, tokens, "a"))
    pool.release(fill(pool, tokens, "b"))
    assert places(pool) == (4, 4, 0, 0), "both are there"
    hits = {domain: {entry.page for entry in pool.match([*tokens, 1], domain)} for domain in ("a", "b", "c", "")}
    assert [len(hits[domain]) for domain in ("a", "b", "c", "")] == [2, 2, 0, 0]
    assert not hits["a"] & hits["b"]


def test_a_collision_never_shares_a_page():
    pool = PagePool(8, 4, digest=lambda domain, parent, tokens: b"same")
    one, two = [1, 2, 3, 4], [5, 6, 7, 8]
    pool.release(fill(pool, one))
    pool.release(fill(pool, two))
    assert len(pool.match([*one, 0], "")) == 1
    assert not pool.match([*two, 0], "")
    assert not pool.match([*one, 0], "other"), "another domain with the same key"


def test_a_collision_of_the_parent_does_not_share_the_child():
    # Only first pages collide: the second page's key is then the same for two different prefixes.
    def digest(domain: bytes, parent: bytes, tokens: bytes) -> bytes:
        return b"root" if not parent else parent + tokens

    pool = PagePool(8, 4, digest=digest)
    tail = [9, 9, 9, 9]
    pool.release(fill(pool, [5, 6, 7, 8, *tail]))
    pool.release(fill(pool, [1, 2, 3, 4, *tail]))
    assert len(pool.match([5, 6, 7, 8, *tail, 0], "")) == 2
    assert not pool.match([1, 2, 3, 4, *tail, 0], "")
    pool.allocate(7)  # Evicts the tail of the first and leaves its root.
    assert len(pool.match([5, 6, 7, 8, *tail, 0], "")) == 1


def test_a_page_is_not_found_behind_another_parent_with_the_same_key():
    def digest(domain: bytes, parent: bytes, tokens: bytes) -> bytes:
        return b"root" if not parent else parent + tokens

    pool = PagePool(3, 4, digest=digest)
    tail = [9, 9, 9, 9]
    first = fill(pool, [5, 6, 7, 8, *tail])
    pool.release(first[:1])
    pool.release(pool.allocate(2))  # Evicts the root of the first; its tail is held.
    second = fill(pool, [1, 2, 3, 4])
    assert len(pool.match([1, 2, 3, 4, *tail, 0], "")) == 1, "the tail was computed after other tokens"
    pool.check([first[1:], second])


def test_a_page_whose_parent_was_evicted_is_replaced():
    pool = PagePool(6, 4)
    tokens = list(range(8))
    first = fill(pool, tokens[:4])
    mine = pool.allocate(2)  # The same first page, computed twice.
    root = pool.publish(mine[0], tokens[:4], None, "")
    assert root is not None
    assert root.page == first[0]
    assert pool.publish(mine[1], tokens[4:], root, "") is not None
    pool.release(first)
    taken = pool.allocate(4)  # Evicts the root; its child is held, and unreachable.
    assert not pool.match([*tokens, 1], "")
    pool.release(taken)
    again = fill(pool, tokens)
    assert len(pool.match([*tokens, 1], "")) == 2
    pool.check([mine, again])


def test_pins_are_held_read_by_all_domains_and_limited():
    from flash_worker.kv import PINNED

    pool = PagePool(8, 4)
    tokens = list(range(8))
    pages = fill(pool, tokens, PINNED)
    assert not pool.match([*tokens, 1], "a"), "not pinned yet"
    entry = pool._entry_of[pages[1]]
    assert entry.parent is not None
    pool.pin([entry.parent, entry])
    pool.release(pages)
    assert places(pool) == (6, 0, 2, 0)
    assert pool.usable == 6
    pool.allocate(6)
    assert [len(pool.match([*tokens, 1], domain)) for domain in ("a", "b")] == [2, 2]
    other = PagePool(4, 4)
    pages = fill(other, list(range(12)), PINNED)
    chain = [other._entry_of[page] for page in pages]
    with pytest.raises(ValueError, match="0 tokens are pinned, 12 more are wanted, the pool has 16"):
        other.pin(chain)
    assert other.pinned == 0
