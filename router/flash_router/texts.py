"""Tokenizers and chat templates that workers brought, by content hash: the router needs no access to model sources."""

from __future__ import annotations

from collections import OrderedDict

from flash_wire.text import TextModel
from flash_wire.v1 import fleet_pb2 as fp

MOST = 16
"""Kept at once. A rollout needs two a tier; the oldest unused goes first, and its workers are asked again."""


class Texts:
    def __init__(self) -> None:
        self._known: OrderedDict[str, TextModel] = OrderedDict()

    def get(self, text_hash: str) -> TextModel | None:
        if (text := self._known.get(text_hash)) is not None:
            self._known.move_to_end(text_hash)
        return text

    @staticmethod
    def read(assets: fp.TextAssets) -> TextModel:
        """Takes some tens of ms, so not on the event loop. Raises ValueError when the assets cannot be used or are not
        what their hash says."""
        text = TextModel.from_assets(assets.tokenizer_json, assets.chat_template, assets.config_json)
        if text.hash != assets.text_hash:
            raise ValueError(f"the text assets are called {assets.text_hash!r} but hash to {text.hash!r}")
        return text

    def add(self, text: TextModel) -> None:
        self._known[text.hash] = text
        while len(self._known) > MOST:
            self._known.popitem(last=False)
