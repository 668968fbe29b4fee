"""Zachary's karate club: who met whom outside the club, and where they went when it split.

W. W. Zachary, "An information flow model for conflict and fission in small groups", Journal of
Anthropological Research 33 (1977). 34 members, 78 friendships, two sides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# for each member, the friends with a higher number
_FRIENDS = {
    0: (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31,),
    1: (2, 3, 7, 13, 17, 19, 21, 30,),
    2: (3, 7, 8, 9, 13, 27, 28, 32,),
    3: (7, 12, 13,),
    4: (6, 10,),
    5: (6, 10, 16,),
    6: (16,),
    8: (30, 32, 33,),
    9: (33,),
    13: (33,),
    14: (32, 33,),
    15: (32, 33,),
    18: (32, 33,),
    19: (33,),
    20: (32, 33,),
    22: (32, 33,),
    23: (25, 27, 29, 32, 33,),
    24: (25, 27, 31,),
    25: (31,),
    26: (29, 33,),
    27: (33,),
    28: (31, 33,),
    29: (32, 33,),
    30: (32, 33,),
    31: (32, 33,),
    32: (33,),
}  # fmt: skip
# those who went with the officer
_OFFICER = (
    9,
    14,
    15,
    18,
    20,
    22,
    23,
    24,
    25,
    26,
    27,
    28,
    29,
    30,
    31,
    32,
    33,
)


def karate_club() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Friendships as [2, 156], each in both directions, and the side of each of the 34 members."""
    pairs = [(a, b) for a, friends in _FRIENDS.items() for b in friends]
    edges = np.array(pairs + [(b, a) for a, b in pairs], np.int64).T
    sides = np.zeros(34, np.int64)
    sides[list(_OFFICER)] = 1
    return np.ascontiguousarray(edges), sides
