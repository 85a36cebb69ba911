"""Models: from an address to a Runner. `load` is the way in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flash_worker.models.errors import ModelError

if TYPE_CHECKING:
    from flash_worker.models.loading import Loaded, load

__all__ = ["Loaded", "ModelError", "load"]


def __getattr__(name: str) -> Any:
    # Torch takes seconds to import: who only names an error does not wait for it, and no circle of imports arises.
    if name in ("Loaded", "load"):
        from flash_worker.models import loading

        return getattr(loading, name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
