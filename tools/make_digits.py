"""Build ridgeline/data/digits.npz from the digits file that scikit-learn ships.

usage: python tools/make_digits.py [OUTPUT]      (needs scikit-learn; run once, the result is kept)

The source is the test part of the UCI set 'Optical Recognition of Handwritten Digits'
(E. Alpaydin, C. Kaynak, 1998), 1,797 images of 8×8 pixels with values 0…16. The pixels and the
labels are stored as they are, in the file's order, as unsigned bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from ridgeline.data.digits import content_hash

DEFAULT = Path(__file__).parent.parent / "ridgeline" / "data" / "digits.npz"


def main() -> None:
    """Write the archive and print the content hash that docs/digits.md publishes."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    source = load_digits()
    images = source.images.astype(np.uint8)
    labels = source.target.astype(np.uint8)
    if not np.array_equal(images, source.images):
        raise SystemExit("the pixels are not whole numbers; this is not the expected file")
    np.savez_compressed(output, images=images, labels=labels)
    print(f"{output}: {len(images)} images, {output.stat().st_size} bytes")
    print(f"content {content_hash(images, labels)}")


if __name__ == "__main__":
    main()
