"""`torch.compile(model, backend="ridgeline")`: a program of PyTorch's runs as programs of ours.

    model = torch.compile(model, backend="ridgeline")
    loss = model(x).square().mean()
    loss.backward()
    print(ridgeline.torch_backend.explain())  # which calls torch still made, and why

Where Ridgeline is installed torch finds the backend by itself; from a checkout, importing this
module registers it. `import ridgeline` does not import it, nor torch.
"""

from __future__ import annotations

import torch

if torch.__version__.endswith("+ridgeline"):
    raise ImportError("torch means Ridgeline in this process: there is no torch.compile to serve")

import torch._dynamo

from ridgeline.torch_backend.backend import ridgeline as ridgeline
from ridgeline.torch_backend.report import (
    GraphReport as GraphReport,
    by_torch as by_torch,
    explain as explain,
    reports as reports,
    reset as reset,
)

# where a compiled function calls backward() Dynamo looks at the Python that runs: not at ours
torch._dynamo.trace_rules.add("ridgeline")
if "ridgeline" not in torch._dynamo.list_backends():
    torch._dynamo.register_backend(ridgeline, name="ridgeline")
