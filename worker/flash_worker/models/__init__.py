"""Models: from an address to a Runner. `load` is the way in; torch is imported when it is called for."""

from __future__ import annotations

from flash_worker.models.errors import ModelError
from flash_worker.models.loading import Loaded, load

__all__ = ["Loaded", "ModelError", "load"]
