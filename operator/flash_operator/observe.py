"""What the watches have seen, kept small: whole FlashDeployments, and of their children what plan and status read.

A child's full content is compared with its manifest once (`flash_operator.apply`); after that its digest stands for it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from flash_wire.settings import hash_of

from flash_operator.client import (
    CONFIG_MAP,
    DEPLOYMENT,
    DEPLOYMENT_OF_OURS,
    FIELD_MANAGER,
    PDB,
    POD,
    SERVICE,
    Body,
    Resource,
)
from flash_operator.naming import OWNER_LABEL

Key = tuple[str, str]
"""(namespace, name) of a FlashDeployment."""

Entry = tuple[str, str, str]
"""(namespace, name, uid) of any object."""

MANAGED = f"app.kubernetes.io/managed-by=flashfleet-operator,{OWNER_LABEL}"
"""Selects our children, on the server's side."""
APPLIED_HASH = "flashfleet.io/manifest"
"""Annotation with the hash of the manifest that was applied: no state, only what spares a needless apply at a start."""

WATCHED = (DEPLOYMENT_OF_OURS, DEPLOYMENT, POD, SERVICE, CONFIG_MAP, PDB)

# What others write into our objects as a matter of course.
_NOISE = ("deployment.kubernetes.io/revision",)


@dataclass(slots=True)
class Seen:
    """One child object."""

    uid: str
    version: int
    owner_uid: str
    applied_hash: str
    digest: bytes
    """Of labels, annotations, owner and spec or data: what an apply could change."""
    seen: bytes
    """The part that plan and status read, as JSON: a tenth of what it is as objects."""
    owns_replicas: bool = False
    """Whether `spec.replicas` is ours by a former apply."""
    packed: bytes | None = None
    """The content behind the digest, until somebody has compared it."""

    @property
    def view(self) -> Body:
        """What plan and status read, in Kubernetes' own shape."""
        return dict(json.loads(self.seen))

    def content(self) -> Body | None:
        return None if self.packed is None else dict(json.loads(zlib.decompress(self.packed)))


@dataclass(slots=True)
class Family:
    """A FlashDeployment (None when it is gone or not seen yet) and its children by (kind, name)."""

    uid: str = ""
    version: int = 0
    packed: bytes | None = None
    ready: tuple[str, str] = ("", "")
    """(status, reason) of its Ready condition."""
    children: dict[tuple[str, str], Seen] = field(default_factory=dict)

    @property
    def deployment(self) -> Body | None:
        """A copy."""
        if self.packed is None:
            return None
        body = dict(json.loads(zlib.decompress(self.packed)))
        body["metadata"]["resourceVersion"] = str(self.version)
        return body

    def views(self, kind: str) -> list[Body]:
        return [seen.view for (found, _), seen in sorted(self.children.items()) if found == kind]


class World:
    """The caches. `put` and `drop` return the key whose world changed, or None when nothing did."""

    def __init__(self) -> None:
        self._families: dict[Key, Family] = {}
        self._owners: dict[tuple[str, str, str], str] = {}

    def keys(self) -> list[Key]:
        """FlashDeployments that exist."""
        return [key for key, family in self._families.items() if family.packed is not None]

    def family(self, key: Key) -> Family:
        return self._families.get(key) or Family()

    def put(self, resource: Resource, body: Body) -> Key | None:
        """An object as a watch, a list or an answer shows it. One older than what is known changes nothing."""
        meta = body["metadata"]
        if resource is DEPLOYMENT_OF_OURS:
            return self._put_deployment(body)
        namespace, name = meta["namespace"], meta["name"]
        owner = (meta.get("labels") or {}).get(OWNER_LABEL, "")
        before = self._owners.get((resource.kind, namespace, name))
        if before is not None and before != owner:
            self.drop(resource, namespace, name)
        if not owner:
            return (namespace, before) if before else None
        key = (namespace, owner)
        children = self._families.setdefault(key, Family()).children
        known = children.get((resource.kind, name))
        if known and known.uid == meta["uid"] and known.version >= int(meta["resourceVersion"]):
            return None
        children[resource.kind, name] = seen = _seen(resource, body)
        self._owners[resource.kind, namespace, name] = owner
        if known and known.digest == seen.digest:
            if known.packed is None:
                seen.packed = None  # compared already
            if known.seen == seen.seen and known.uid == seen.uid:
                return None
        return key

    def drop(self, resource: Resource, namespace: str, name: str, uid: str | None = None) -> Key | None:
        """An object is gone. With `uid`, only if it is still that one."""
        if resource is DEPLOYMENT_OF_OURS:
            family = self._families.get((namespace, name))
            if family is None or family.packed is None or uid not in (None, family.uid):
                return None
            family.packed = None
            self._prune((namespace, name))
            return (namespace, name)
        owner = self._owners.get((resource.kind, namespace, name))
        if owner is None:
            return None
        key = (namespace, owner)
        children = self._families[key].children
        if uid is not None and children[resource.kind, name].uid != uid:
            return None
        del children[resource.kind, name], self._owners[resource.kind, namespace, name]
        self._prune(key)
        return key

    def versions(self, resource: Resource) -> dict[Entry, int]:
        """The newest version seen of each known object of a kind."""
        found: dict[Entry, int] = {}
        for (namespace, owner), family in self._families.items():
            if resource is DEPLOYMENT_OF_OURS:
                if family.packed is not None:
                    found[namespace, owner, family.uid] = family.version
                continue
            for (kind, name), seen in family.children.items():
                if kind == resource.kind:
                    found[namespace, name, seen.uid] = seen.version
        return found

    def _put_deployment(self, body: Body) -> Key | None:
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        family = self._families.setdefault(key, Family())
        version = int(meta["resourceVersion"])
        same = family.packed is not None and family.uid == meta["uid"]
        if same and family.version >= version:
            return None
        kept = {name: part for name, part in body.items() if name in ("metadata", "spec", "status")}
        kept["metadata"] = {name: meta[name] for name in meta if name not in ("managedFields", "resourceVersion")}
        kept |= {"apiVersion": DEPLOYMENT_OF_OURS.api_version, "kind": DEPLOYMENT_OF_OURS.kind}
        packed = zlib.compress(_json(kept), 1)
        news = not same or packed != family.packed
        family.uid, family.version, family.packed = meta["uid"], version, packed
        conditions = (body.get("status") or {}).get("conditions") or []
        family.ready = next(((c["status"], c["reason"]) for c in conditions if c["type"] == "Ready"), ("", ""))
        return key if news else None

    def _prune(self, key: Key) -> None:
        family = self._families[key]
        if family.packed is None and not family.children:
            del self._families[key]


def _json(body: Body) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _seen(resource: Resource, body: Body) -> Seen:
    meta = body["metadata"]
    annotations = {name: text for name, text in (meta.get("annotations") or {}).items() if name not in _NOISE}
    content = {name: part for name, part in body.items() if name not in ("metadata", "status", "apiVersion", "kind")}
    content["metadata"] = {
        "labels": meta.get("labels") or {},
        "annotations": annotations,
        "ownerReferences": meta.get("ownerReferences") or [],
    }
    owner = next((ref["uid"] for ref in meta.get("ownerReferences") or [] if ref.get("controller")), "")
    # Nobody applies pods, so nothing is kept for a comparison.
    applied = resource is not POD
    text = _json(content) if applied else b""
    return Seen(
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        owner_uid=owner,
        applied_hash=annotations.get(APPLIED_HASH, ""),
        digest=blake2b(text, digest_size=16).digest(),
        seen=_json(_VIEWS[resource.kind](body)),
        owns_replicas=resource is DEPLOYMENT and _owns_replicas(meta),
        packed=zlib.compress(text, 1) if applied else None,
    )


# -- views ----------------------------------------------------------------------------------------------------------


def _metadata(meta: Body) -> Body:
    view = {"name": meta["name"], "uid": meta["uid"], "labels": meta.get("labels") or {}}
    for name in ("generation", "creationTimestamp", "deletionTimestamp"):
        if name in meta:
            view[name] = meta[name]
    return view


def _some(body: Body | None, *names: str) -> Body:
    return {name: body[name] for name in names if name in body} if body else {}


def _view_deployment(body: Body) -> Body:
    spec, template = body["spec"], body["spec"]["template"]
    return {
        "metadata": _metadata(body["metadata"]),
        "spec": {
            "replicas": spec.get("replicas", 1),
            "template": {
                "metadata": _some(template.get("metadata"), "labels", "annotations"),
                "spec": {"volumes": [volume for volume in template["spec"].get("volumes") or [] if _maps(volume)]},
            },
        },
        "status": body.get("status") or {},
    }


def _view_pod(body: Body) -> Body:
    spec, status = body["spec"], body.get("status") or {}
    return {
        "metadata": _metadata(body["metadata"]),
        "spec": _some(spec, "nodeName") | {"volumes": [v for v in spec.get("volumes") or [] if _maps(v)]},
        "status": _some(status, "phase", "reason", "message", "podIP", "startTime")
        | {
            "conditions": [
                _some(condition, "type", "status", "reason", "message") for condition in status.get("conditions") or []
            ],
            "initContainerStatuses": [_container(one) for one in status.get("initContainerStatuses") or []],
            "containerStatuses": [_container(one) for one in status.get("containerStatuses") or []],
        },
    }


def _container(status: Body) -> Body:
    return _some(status, "name", "ready", "started", "restartCount", "state", "lastState")


def _owns_replicas(meta: Body) -> bool:
    return any(
        entry.get("manager") == FIELD_MANAGER
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
        and "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
        for entry in meta.get("managedFields") or []
    )


def _view_config_map(body: Body) -> Body:
    hashes = {name: hash_of(text) for name, text in (body.get("data") or {}).items()}
    return {"metadata": _metadata(body["metadata"]), "hashes": hashes}


def _view_other(body: Body) -> Body:
    return {"metadata": _metadata(body["metadata"])}


_VIEWS: dict[str, Callable[[Body], Body]] = {
    DEPLOYMENT.kind: _view_deployment,
    POD.kind: _view_pod,
    SERVICE.kind: _view_other,
    CONFIG_MAP.kind: _view_config_map,
    PDB.kind: _view_other,
}


def _maps(volume: Body) -> list[str]:
    """Names of the ConfigMaps that a pod's volume shows."""
    sources: list[Any] = [volume, *((volume.get("projected") or {}).get("sources") or [])]
    return [source["configMap"]["name"] for source in sources if (source.get("configMap") or {}).get("name")]


def config_maps(pod_spec: Body) -> set[str]:
    """Names of the ConfigMaps that a pod spec mounts."""
    return {name for volume in pod_spec.get("volumes") or [] for name in _maps(volume)}
