from flash_wire.v1 import inference_pb2 as _inference_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("protocol", "incarnation", "name", "tier", "revision", "text_hash", "max_model_len", "kv_tokens", "static_hash", "live_hash", "max_seqs", "block_size")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TEXT_HASH_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STATIC_HASH_FIELD_NUMBER: _ClassVar[int]
    LIVE_HASH_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    incarnation: str
    name: str
    tier: str
    revision: str
    text_hash: str
    max_model_len: int
    kv_tokens: int
    static_hash: str
    live_hash: str
    max_seqs: int
    block_size: int
    def __init__(self, protocol: _Optional[int] = ..., incarnation: _Optional[str] = ..., name: _Optional[str] = ..., tier: _Optional[str] = ..., revision: _Optional[str] = ..., text_hash: _Optional[str] = ..., max_model_len: _Optional[int] = ..., kv_tokens: _Optional[int] = ..., static_hash: _Optional[str] = ..., live_hash: _Optional[str] = ..., max_seqs: _Optional[int] = ..., block_size: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "router_id", "need_text")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ROUTER_ID_FIELD_NUMBER: _ClassVar[int]
    NEED_TEXT_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    router_id: str
    need_text: bool
    def __init__(self, protocol: _Optional[int] = ..., router_id: _Optional[str] = ..., need_text: _Optional[bool] = ...) -> None: ...

class TextAssets(_message.Message):
    __slots__ = ("text_hash", "tokenizer_json", "chat_template", "config_json")
    TEXT_HASH_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_JSON_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    text_hash: str
    tokenizer_json: bytes
    chat_template: str
    config_json: str
    def __init__(self, text_hash: _Optional[str] = ..., tokenizer_json: _Optional[bytes] = ..., chat_template: _Optional[str] = ..., config_json: _Optional[str] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("job", "epoch", "nonce")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    nonce: str
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class Prompt(_message.Message):
    __slots__ = ("job", "epoch", "nonce", "prompt_ids", "committed_ids", "sampling", "time_left_ms", "priority", "alone")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    TIME_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    nonce: str
    prompt_ids: _containers.RepeatedScalarFieldContainer[int]
    committed_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _inference_pb2.Sampling
    time_left_ms: int
    priority: _inference_pb2.Priority
    alone: bool
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., nonce: _Optional[str] = ..., prompt_ids: _Optional[_Iterable[int]] = ..., committed_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_inference_pb2.Sampling, _Mapping]] = ..., time_left_ms: _Optional[int] = ..., priority: _Optional[_Union[_inference_pb2.Priority, str]] = ..., alone: _Optional[bool] = ...) -> None: ...

class Refuse(_message.Message):
    __slots__ = ("job", "epoch", "nonce", "why", "detail")
    class Why(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Refuse.Why]
        DONE: _ClassVar[Refuse.Why]
        STALE: _ClassVar[Refuse.Why]
        NOT_YET: _ClassVar[Refuse.Why]
    UNSPECIFIED: Refuse.Why
    DONE: Refuse.Why
    STALE: Refuse.Why
    NOT_YET: Refuse.Why
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    nonce: str
    why: Refuse.Why
    detail: str
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., nonce: _Optional[str] = ..., why: _Optional[_Union[Refuse.Why, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("job", "epoch", "nonce", "position", "ids", "logprobs", "cached_tokens")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    nonce: str
    position: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    cached_tokens: int
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., nonce: _Optional[str] = ..., position: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("job", "epoch", "why")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    why: str
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class JobDone(_message.Message):
    __slots__ = ("job", "epoch", "nonce", "position", "finish", "detail", "stop")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    nonce: str
    position: int
    finish: _inference_pb2.FinishReason
    detail: str
    stop: str
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., nonce: _Optional[str] = ..., position: _Optional[int] = ..., finish: _Optional[_Union[_inference_pb2.FinishReason, str]] = ..., detail: _Optional[str] = ..., stop: _Optional[str] = ...) -> None: ...

class DoneAck(_message.Message):
    __slots__ = ("job", "epoch", "nonce")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    nonce: str
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class HandBack(_message.Message):
    __slots__ = ("job", "epoch", "nonce", "why")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    nonce: str
    why: str
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., nonce: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ("slots_free", "kv_tokens_free", "state", "live_hash")
    SLOTS_FREE_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_FREE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIVE_HASH_FIELD_NUMBER: _ClassVar[int]
    slots_free: int
    kv_tokens_free: int
    state: str
    live_hash: str
    def __init__(self, slots_free: _Optional[int] = ..., kv_tokens_free: _Optional[int] = ..., state: _Optional[str] = ..., live_hash: _Optional[str] = ...) -> None: ...

class WorkerFrame(_message.Message):
    __slots__ = ("hello", "text_assets", "begin", "tokens", "done", "hand_back", "alive")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TEXT_ASSETS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    HAND_BACK_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    text_assets: TextAssets
    begin: Begin
    tokens: Tokens
    done: JobDone
    hand_back: HandBack
    alive: Alive
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., text_assets: _Optional[_Union[TextAssets, _Mapping]] = ..., begin: _Optional[_Union[Begin, _Mapping]] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ..., done: _Optional[_Union[JobDone, _Mapping]] = ..., hand_back: _Optional[_Union[HandBack, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ...) -> None: ...

class RouterFrame(_message.Message):
    __slots__ = ("welcome", "prompt", "refuse", "cancel", "done_ack", "alive")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    DONE_ACK_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    prompt: Prompt
    refuse: Refuse
    cancel: Cancel
    done_ack: DoneAck
    alive: Alive
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., prompt: _Optional[_Union[Prompt, _Mapping]] = ..., refuse: _Optional[_Union[Refuse, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., done_ack: _Optional[_Union[DoneAck, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ...) -> None: ...
