"""Key names, built here only. The hash tag is the FlashDeployment: all of its keys share one cluster slot."""

from __future__ import annotations

from flash_wire.broker.types import Pool


def fleet_prefix(fleet: str) -> str:
    """Raises ValueError when `fleet` is not namespace/name: a brace in it would move keys to another slot."""
    namespace, slash, name = fleet.partition("/")
    if not (namespace and slash and name) or "/" in name or any(c in fleet for c in "{} \n"):
        raise ValueError(f"fleet must be namespace/name without braces and spaces, such as default/chat, not {fleet!r}")
    return f"fd:{{{fleet}}}:"


def fleet_key(fleet: str) -> str:
    return fleet_prefix(fleet) + "fleet"


def generation_key(fleet: str) -> str:
    return fleet_prefix(fleet) + "generation"


def tenant_prefix(fleet: str) -> str:
    return fleet_prefix(fleet) + "tenant:"


def pool_name(pool: Pool) -> str:
    """tier:rev. Raises ValueError when a part is empty or holds a colon, a brace or a space."""
    for what, part in (("tier", pool.tier), ("rev", pool.rev)):
        if not part or any(c in part for c in ":{} \n"):
            raise ValueError(f"a pool's {what} must be a word without colons, braces and spaces, not {part!r}")
    return f"{pool.tier}:{pool.rev}"


def pool_prefix(pool: Pool) -> str:
    return f"{fleet_prefix(pool.fleet)}{pool_name(pool)}:"


def job_prefix(pool: Pool) -> str:
    return pool_prefix(pool) + "job:"


def dead_key(pool: Pool) -> str:
    return pool_prefix(pool) + "dead"


def wake_key(pool: Pool) -> str:
    return pool_prefix(pool) + "wake"


def pool_keys(pool: Pool) -> list[str]:
    """The KEYS of every pool script, in their order."""
    prefix = pool_prefix(pool)
    names = ("sched", "q:high", "q:low", "lease", "wake")
    return [*(prefix + name for name in names), fleet_key(pool.fleet)]
