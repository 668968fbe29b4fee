"""The bundled digits and their published split; docs/digits.md states what is checked here."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from ridgeline.data import digits
from ridgeline.data.digits import content_hash, held_out, load_raw
from ridgeline.errors import InputFileError, RidgelineError

DOCS = Path(__file__).parents[2] / "docs" / "digits.md"
CONTENT = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
TEST_INDICES = "5c7733a80184850faaeae64ce2668729b553ec26b1a4fb14a638e384ae10a985"


def split_hash() -> str:
    _, labels = load_raw()
    indices = np.flatnonzero(held_out(labels))
    return hashlib.sha256(" ".join(map(str, indices)).encode()).hexdigest()


def test_content_is_the_published_one() -> None:
    images, labels = load_raw()
    assert images.shape == (1797, 8, 8) and labels.shape == (1797,)
    assert images.min() == 0 and images.max() == 16
    assert content_hash(images, labels) == CONTENT


def test_content_is_scikit_learns() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    source = datasets.load_digits()
    images, labels = load_raw()
    assert np.array_equal(images, source.images) and np.array_equal(labels, source.target)


def test_split_is_the_published_one() -> None:
    _, labels = load_raw()
    test = held_out(labels)
    assert test.sum() == 355 and split_hash() == TEST_INDICES
    share = np.bincount(labels[test]) / np.bincount(labels)
    assert np.all(np.abs(share - 0.2) < 0.01)


def test_docs_publish_both_hashes() -> None:
    text = DOCS.read_text()
    assert set(re.findall(r"\b[0-9a-f]{64}\b", text)) == {CONTENT, TEST_INDICES}


def test_parts_are_disjoint_and_standardised() -> None:
    train, test = digits("train"), digits("test")
    fit, validation = digits("fit"), digits("validation")
    assert len(train) == 1442 and len(test) == 355
    assert len(fit) + len(validation) == len(train)
    assert train.images.shape == (1442, 1, 32, 32) and train.images.dtype == np.float32
    assert abs(float(train.images.mean())) < 1e-3
    assert abs(float(train.images.std()) - 1) < 1e-3
    seen = {image.tobytes() for image in train.images}
    assert not any(image.tobytes() in seen for image in test.images)


def test_wrong_part_and_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="no part 'all'"):
        digits("all")
    broken = tmp_path / "digits.npz"
    broken.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(InputFileError, match="cannot read the digits"):
        load_raw(broken)
