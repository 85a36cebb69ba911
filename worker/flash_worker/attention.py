"""The page pool and attention over it, on the CPU.

Every query's result is the same bits however the step was cut: alone or beside others, in a prompt's chunk of any
size or as a decode. Four rules give this, all about which matrix product the library runs:

- a tile's rows (queries times the heads that share a key head) are padded to a multiple of 8: with fewer rows it
  takes another kernel, which sums in another order;
- its key slots are padded to a multiple of 16, at the end only. Masked slots have weight 0 and add nothing, so the
  sum over keys runs in the same order whatever the padding;
- all queries of a tile start at the same page, so a window never moves the start of another query's sum;
- pages hold finite numbers only, since a masked slot's value is multiplied by 0.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flash_worker.batch import Row

_TILE = 64
_ROWS = 8
_SLOTS = 16
_MAX_SCORES = 1 << 22
_MAX_GATHERED = 1 << 21
_NOWHERE = 1 << 40


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries that are worked on in one go: `count` requests with `queries` each."""

    tokens: Tensor
    """[count * queries] indices into the step's tokens, request by request."""
    count: int
    queries: int
    pages: Tensor
    """[count * n] page numbers; a request's n pages lie in a row."""
    mask: Tensor
    """[count, queries, n * block] fp32, 0 where a query sees a key slot and -inf where not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a step's attention needs; the same for all layers."""

    slots: Tensor
    """[tokens] int64: where each token's key and value go, page * block + offset."""
    tiles: list[Tile]


@dataclass(frozen=True, slots=True)
class Span:
    """One request's queries [first, first + queries) and the pages that they look at."""

    at: int
    """Index of the first query among the step's tokens."""
    first: int
    queries: int
    numbers: np.ndarray
    """Indices of those pages in the request, increasing."""
    pages: np.ndarray


def _lazy_zeros(shape: tuple[int, ...]) -> Tensor:
    """Zeros that cost neither time nor memory until they are written, a small page of the system at a time.

    numpy's would ask for huge pages: the first token written would then wait for hundreds of MiB to be cleared.
    """
    return torch.frombuffer(mmap.mmap(-1, 4 * math.prod(shape)), dtype=torch.float32).view(shape)


class PagePool:
    """Keys and values of all layers in fp32 pages of `block` tokens.

    A layer is [2 * kv_heads, pages, block, head_dim], keys first: a gather of pages then gives matrices that
    a batched product takes as they are.
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int, pages: int, block: int) -> None:
        self.block, self.pages, self.kv_heads, self.head_dim = block, pages, kv_heads, head_dim
        shape = (2 * kv_heads, pages, block, head_dim)
        self._layers = [_lazy_zeros(shape) for _ in range(layers)]

    def write(self, layer: int, slots: Tensor, keys_values: Tensor) -> None:
        """Store [tokens, 2 * kv_heads, head_dim] at `slots`."""
        flat = self._layers[layer].view(2 * self.kv_heads, self.pages * self.block, self.head_dim)
        flat.index_copy_(1, slots, keys_values.transpose(0, 1).nan_to_num(0.0, 0.0, 0.0))

    def read(self, layer: int, pages: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Keys and values, each [kv_heads * count, slots, head_dim], of count requests with equally many pages."""
        source = self._layers[layer].view(2 * self.kv_heads, self.pages, self.block * self.head_dim)
        both = source.index_select(1, pages).view(2 * self.kv_heads * count, -1, self.head_dim)
        half = self.kv_heads * count
        return both[:half], both[half:]

    def copy(self, source: int, target: int) -> None:
        """Copy a page in all layers."""
        for layer in self._layers:
            layer[:, target].copy_(layer[:, source])


class Attention:
    """Attention of one model over one pool. `window` 0 sees all keys; else a query at p sees the first `sink` keys
    and those in (p - window, p]."""

    def __init__(self, pool: PagePool, heads: int, window: int, sink: int) -> None:
        self.pool, self.heads, self.window, self.sink = pool, heads, window, sink
        self.group = heads // pool.kv_heads
        self._scale = pool.head_dim**-0.5

    def plan(self, rows: Sequence[Row]) -> Plan:
        """Raises ValueError when a row's pages do not cover its tokens or are not in the pool."""
        slots: list[np.ndarray] = []
        spans: list[Span] = []
        at = 0
        for row in rows:
            pages = self._pages(row)
            positions = np.arange(row.start, row.start + len(row.tokens))
            slots.append(pages[positions // self.pool.block] * self.pool.block + positions % self.pool.block)
            spans.extend(self._spans(row, pages, at))
            at += len(row.tokens)
        return Plan(torch.from_numpy(np.concatenate(slots)), [self._tile(group) for group in self._groups(spans)])

    def __call__(self, layer: int, queries: Tensor, plan: Plan, out: Tensor) -> None:
        """`queries` [tokens, heads, head_dim], rotated; writes `out` of the same shape."""
        for tile in plan.tiles:
            self._attend(layer, queries, tile, out)

    def _attend(self, layer: int, queries: Tensor, tile: Tile, out: Tensor) -> None:
        kv_heads, width, count, length = self.pool.kv_heads, self.pool.head_dim, tile.count, tile.queries
        used = self.group * length
        rows = -(-used // _ROWS) * _ROWS
        keys, values = self.pool.read(layer, tile.pages, count)
        # [count, length, kv, group, width] -> [kv, count, length, group, width]: queries of one key head together.
        picked = queries.index_select(0, tile.tokens).view(count, length, kv_heads, self.group, width)
        picked = picked.permute(2, 0, 1, 3, 4)
        padded = torch.zeros(kv_heads, count, rows, width) if rows > used else torch.empty(kv_heads, count, used, width)
        torch.mul(picked, self._scale, out=padded[:, :, :used].view(kv_heads, count, length, self.group, width))
        scores = torch.bmm(padded.view(-1, rows, width), keys.transpose(1, 2)).view(kv_heads, count, rows, -1)
        seen = scores[:, :, :used].view(kv_heads, count, length, self.group, -1)
        seen.add_(tile.mask[None, :, :, None, :])
        weights = torch.softmax(scores, dim=-1)
        mixed = torch.bmm(weights.view(kv_heads * count, rows, -1), values).view(kv_heads, count, rows, width)
        mixed = mixed[:, :, :used].view(kv_heads, count, length, self.group, width).permute(1, 2, 0, 3, 4)
        out.index_copy_(0, tile.tokens, mixed.reshape(count * length, self.heads, width))

    def _pages(self, row: Row) -> np.ndarray:
        pages = np.fromiter(row.pages, dtype=np.int64, count=len(row.pages))
        end = row.start + len(row.tokens)
        if not len(row.tokens) or row.start < 0 or len(pages) * self.pool.block < end:
            raise ValueError(
                f"request {row.id}: {len(pages)} pages of {self.pool.block} do not cover tokens {row.start} to {end}"
            )
        if pages.min() < 0 or pages.max() >= self.pool.pages:
            raise ValueError(f"request {row.id}: a page lies outside the pool of {self.pool.pages}")
        return pages

    def _spans(self, row: Row, pages: np.ndarray, at: int) -> Iterator[Span]:
        block, end = self.pool.block, row.start + len(row.tokens)
        first = row.start
        while first < end:
            start_page = self._first_page(first)
            keys = end if not start_page else self.window + block + self.sink
            stop = min(end, first + max(8, min(_TILE, _MAX_SCORES // (self.heads * keys))))
            if self.window:
                # The last query whose window starts in the same page.
                stop = min(stop, max(first + 1, (max(start_page, self._free_pages()) + 1) * block + self.window - 1))
            last_page = (stop - 1) // block
            numbers = np.arange(start_page, last_page + 1)
            if start_page:
                numbers = np.concatenate([np.arange(-(-self.sink // block)), numbers])
            yield Span(at + first - row.start, first, stop - first, numbers, pages[numbers])
            first = stop

    def _free_pages(self) -> int:
        """Windows that start in a page up to this one are read from page 0: the sinks' pages lie directly before."""
        return -(-self.sink // self.pool.block)

    def _first_page(self, position: int) -> int:
        """Of the window of a query; 0 when nothing lies between it and the sinks."""
        if not self.window:
            return 0
        page = max(0, position - self.window + 1) // self.pool.block
        return page if page > self._free_pages() else 0

    def _groups(self, spans: list[Span]) -> Iterator[list[Span]]:
        """Decodes of about the same length together; a prompt's chunk alone."""
        decodes = sorted((span for span in spans if span.queries == 1), key=lambda span: len(span.pages))
        yield from ([span] for span in spans if span.queries > 1)
        group: list[Span] = []
        for span in decodes:
            slots = len(span.pages) * self.pool.block
            wide = 2 * self.pool.kv_heads * self.pool.head_dim * slots
            if group and (
                (len(group) + 1) * wide > _MAX_GATHERED or slots > 1.25 * len(group[0].pages) * self.pool.block + 32
            ):
                yield group
                group = []
            group.append(span)
        if group:
            yield group

    def _tile(self, spans: list[Span]) -> Tile:
        block = self.pool.block
        count = max(len(span.pages) for span in spans)
        while count * block % _SLOTS:
            count += 1
        pages = np.zeros((len(spans), count), dtype=np.int64)
        keys = np.full((len(spans), count, block), _NOWHERE, dtype=np.int64)
        offsets = np.arange(block)
        for i, span in enumerate(spans):
            pages[i, : len(span.pages)] = span.pages
            keys[i, : len(span.pages)] = span.numbers[:, None] * block + offsets
        length = spans[0].queries
        at = np.array([span.at for span in spans])[:, None] + np.arange(length)
        queries = (np.array([span.first for span in spans])[:, None] + np.arange(length))[:, :, None]
        slots = keys.reshape(len(spans), 1, count * block)
        visible = slots <= queries
        if self.window:
            visible &= (slots > queries - self.window) | (slots < self.sink)
        mask = np.where(visible, np.float32(0), np.float32(-np.inf))
        return Tile(
            torch.from_numpy(at.reshape(-1)),
            len(spans),
            length,
            torch.from_numpy(pages.reshape(-1)),
            torch.from_numpy(mask),
        )
