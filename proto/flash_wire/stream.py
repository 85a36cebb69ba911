"""What both ends of the worker-router stream hold each other to."""

ALIVE_EVERY = 1.0
"""Seconds without a frame of its own after which a side sends Alive."""

SILENCE = 5.0
"""Seconds without a frame from the other side after which a side closes the stream."""

MAX_FRAME = 64 * 1024 * 1024
"""Bytes of one frame: the tokenizer of a large vocabulary has about 20 MB."""

LEASE_MS = 3000
"""Of a claimed job. A worker beats every third of it; a router that restores a job gives it as much."""
