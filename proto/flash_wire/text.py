"""Tokenizer and chat template: from a safetensors folder, from GGUF, or from a peer's TextAssets.

CONTRACT (to be filled in):

class TextModel:
    hash: str                      # 16 hex digits over the three assets
    vocab_size: int
    stop_ids: frozenset[int]       # end-of-text and end-of-turn
    has_template: bool
    @classmethod from_folder(path) / from_gguf(path) / from_assets(tokenizer_json: bytes, chat_template: str, config_json: str)
    def assets(self) -> tuple[bytes, str, str]
    def encode(self, text: str) -> list[int]                          # a raw prompt; bos as the model wants it
    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]   # (role, content), generation prompt added
    def decode(self, ids: Sequence[int]) -> str

class StreamDecoder:               # text is a pure function of (ids, stop strings): router and worker get the same
    def __init__(self, text: TextModel, stop: Sequence[str] = ())
    def push(self, ids: Sequence[int]) -> str       # text that is now certain
    def flush(self) -> str                          # the rest, at the end
    stopped: str | None                             # the stop string that matched; nothing is emitted from it on
    tokens_used: int                                # ids consumed up to and including the one that completed the stop
"""
