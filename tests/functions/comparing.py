"""Comparing tensors in tests of the front end."""

from __future__ import annotations

import numpy as np


def close(a, b, tolerance=1e-6):
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
    )
