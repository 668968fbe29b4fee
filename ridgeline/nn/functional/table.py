"""The functions that this namespace alone has, from the table of functions."""

from __future__ import annotations

from ridgeline.functions import neural  # noqa: F401  (adds them to the table)
from ridgeline.functions.registry import TABLE
from ridgeline.tensors.dispatch import NAMESPACES, make_function

OWN = {
    entry.name: make_function(entry)
    for entry in TABLE.values()
    if entry.namespace == "nn.functional"
}
NAMESPACES["nn.functional"] = OWN
