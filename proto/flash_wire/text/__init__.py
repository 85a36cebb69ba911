"""Tokenizer and chat template: from a safetensors folder, from GGUF, or from a peer's TextAssets.

`TextModel` turns text into token ids and back. `StreamDecoder` turns an answer's ids into text while they arrive: a
pure function of the ids and the stop strings, so that the router and the worker get the same.
"""

from flash_wire.text.errors import TextError, TooLong
from flash_wire.text.model import TextModel
from flash_wire.text.stream import StreamDecoder, check_stops

__all__ = ["StreamDecoder", "TextError", "TextModel", "TooLong", "check_stops"]
