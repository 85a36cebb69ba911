"""Text of an answer while its tokens arrive: never taken back, never past a stop string."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flash_wire.text.model import TextModel
from flash_wire.text.pieces import RunningText

MAX_STOPS = 16
MAX_STOP_CHARS = 1000


class StreamDecoder:
    """Token ids in, certain text out. The text depends on the ids and the stop strings only, not on how the ids are
    grouped into pushes: a router and a worker that saw the same ids have the same text, and so has a new decoder that
    is fed an answer's committed ids.

    The texts of all pushes and of the flush, joined, are `text.decode(ids)`, cut where the stop string starts that is
    complete first (of several that end at the same character, the one that starts first). One decoder belongs to one
    request and is not for several threads.
    """

    def __init__(self, text: TextModel, stop: Sequence[str] = ()) -> None:
        """Raises ValueError for an empty stop string, for more than 16, or for one of more than 1000 characters."""
        check_stops(stop)
        self.stopped: str | None = None
        """The stop string that matched. From then on push gives nothing."""
        self.tokens_used = 0
        """Ids taken, up to and including the one that completed the stop string."""
        self._text = RunningText(text.pieces)
        self._ended = False
        self._stops = [(one, _failures(one)) for one in dict.fromkeys(stop)]
        self._matched = [0] * len(self._stops)
        self._heads = re.compile("|".join(re.escape(head) for head in sorted({one[0] for one in stop})))
        # Invariant: _held is the longest end of the text so far that a stop string begins with, and so is as long as
        # the largest of _matched. Only it is kept back.
        self._held = ""

    def push(self, ids: Sequence[int]) -> str:
        """The text that is now certain. Raises ValueError after flush."""
        if self._ended:
            raise ValueError("the stream was flushed: make a new StreamDecoder and push all ids again")
        certain: list[str] = []
        for token_id in ids:
            if self.stopped is not None:
                break
            self.tokens_used += 1
            if added := self._text.add(token_id):
                certain.append(self._past_stops(added) if self._stops else added)
        return "".join(certain)

    def flush(self) -> str:
        """The rest, when no more ids will come: what was held back, and U+FFFD for a character cut short."""
        if self._ended:
            return ""
        self._ended = True
        if self.stopped is not None:
            return ""
        rest = self._past_stops(self._text.end())
        if self.stopped is None:
            rest, self._held = rest + self._held, ""
        return rest

    def _past_stops(self, added: str) -> str:
        """Runs every stop string's automaton over the new characters; gives what can no longer be part of a match."""
        text, place = self._held + added, len(self._held)
        longest = place
        while place < len(text):
            if not longest:  # nothing is half matched: jump to the next character that could begin a stop string
                head = self._heads.search(text, place) if self._stops else None
                if head is None:
                    break
                place = head.start()
            char, place, longest, complete = text[place], place + 1, 0, ""
            for index, (stop, failures) in enumerate(self._stops):
                matched = self._matched[index]
                while matched and stop[matched] != char:
                    matched = failures[matched - 1]
                matched += stop[matched] == char
                if matched == len(stop) and matched > len(complete):
                    complete = stop
                self._matched[index] = matched
                longest = max(longest, matched)
            if complete:
                self.stopped, self._held = complete, ""
                return text[: place - len(complete)]
        certain = len(text) - longest
        self._held = text[certain:]
        return text[:certain]


def check_stops(stop: Sequence[str]) -> None:
    """Raises ValueError that says which stop string is wrong."""
    if isinstance(stop, str):
        raise ValueError("stop is one text: give a list of texts")
    if len(stop) > MAX_STOPS:
        raise ValueError(f"stop has {len(stop)} texts: give at most {MAX_STOPS}")
    for number, one in enumerate(stop, 1):
        if not isinstance(one, str) or not one:
            raise ValueError(f"stop text {number} is empty or no text: every answer contains the empty text, remove it")
        if len(one) > MAX_STOP_CHARS:
            raise ValueError(f"stop text {number} has {len(one)} characters: give at most {MAX_STOP_CHARS}")


def _failures(stop: str) -> list[int]:
    """For each prefix of `stop`: the length of its longest proper end that `stop` begins with (Knuth-Morris-Pratt)."""
    failures = [0] * len(stop)
    length = 0
    for place in range(1, len(stop)):
        while length and stop[length] != stop[place]:
            length = failures[length - 1]
        length += stop[length] == stop[place]
        failures[place] = length
    return failures
