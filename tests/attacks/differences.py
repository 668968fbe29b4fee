"""Differences from torch's verdicts that are meant: which call, what is said, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.attacks.calls import Call, Values


@dataclass(frozen=True, slots=True)
class Difference:
    """Calls of some functions, where whoever refuses says something of the kind of `said`."""

    functions: str  # their names, with blanks between; a method without `Tensor.`; "" is all
    said: str
    reason: str

    def covers(self, call: Call, error: Exception) -> bool:
        """True for a call and an error that this is about."""
        told = f"{type(error).__name__}: {error}"
        named = not self.functions or _name(call) in self.functions.split()
        return named and re.search(self.said, told) is not None


def _name(call: Call) -> str:
    return call.name.removeprefix("Tensor.").removeprefix("nn.functional.")


# What torch says where it refuses and we do not.
TAKEN = (
    Difference("", r"argument 'out'|takes no keyword", "every function has out=, methods too"),
    # ---- numbers and tensors
    Difference(
        "maximum minimum atan2 hypot logaddexp logical_and heaviside gcd bitwise_left_shift "
        "copysign lerp cosine_similarity where kron cross fmod scatter_add",
        r"must be Tensor, not|no attribute|invalid combination",
        "a number stands for a tensor of its value",
    ),
    Difference(
        "layer_norm binary_cross_entropy binary_cross_entropy_with_logits kl_div mse_loss "
        "batch_norm linear conv1d conv2d",
        r"must be Tensor, not|object has no attribute|invalid combination",
        "a number stands for a weight, bias or target of its value",
    ),
    Difference("scatter", r"same number of dimensions as src", "a 0-d tensor is a number"),
    Difference("copy_ __setitem__", r"not list|assign a list", "a list is the tensor made of it"),
    Difference(
        "add sub mul div pow fmod remainder floor_divide copysign eq lt ge hypot atan2 clamp "
        "linspace arange masked_fill index_fill lerp maximum minimum add_ sub_ mul_ div_ norm "
        "normalize searchsorted histc",
        r"too big to convert|Overflow when unpacking",
        "an int beyond 64 bits is a float where the tensor is one",
    ),
    Difference("roll", r"Overflow when unpacking|too big", "a shift counts modulo the length"),
    Difference("split chunk diagonal tril max_pool2d avg_pool2d", r"Overflow when unpacking",
               "what lies beyond the end lies there however far"),
    Difference("lerp", r"value cannot be converted", "a complex weight gives a complex result"),
    # ---- arguments left out, or in another spelling
    Difference(
        "softmax log_softmax", r"missing 1 required|must be int, not NoneType",
        "as the function in torch.nn, a method chooses the axis by itself",
    ),
    Difference("flip", r"missing 1 required", "NumPy's flip turns all axes round"),
    Difference("eye arange", r"NoneType", "None is what is not given, as in the Array API"),
    Difference("zeros ones rand new_zeros", r"missing 1 required", "no size is that of a scalar"),
    Difference(
        "max min prod median mode cummax sum mean std var amax amin all any argmax argmin "
        "logsumexp",
        r"not NoneType|invalid combination.*(NoneType|list|tuple)|must be int, not (list|tuple)"
        r"|broadcast shape",
        "no axis, or none of a list, is all axes; several axes are as good as one",
    ),
    Difference("sum mean prod max min median squeeze",
               r"\(keepdim=bool|missing 1 required|got \(NoneType\)",
               "no axis is all axes, also where they are kept"),
    Difference("", r"keyword argument 'axis'", "axis is NumPy's name for dim, everywhere"),
    Difference("fft.fft fft.rfft", r"number of data points \(-1\)", "-1 is all, as for a size"),
    Difference("take", r"keyword argument 'dim'", "the Array API's take has an axis"),
    Difference("linalg.norm", r"must be of length 1 or 2", "an empty list is all axes"),
    Difference(
        "full randint new_full new_zeros zeros ones rand", r"not int$|invalid combination.*int\)",
        "one int is the size of a vector",
    ),
    Difference(
        "max_pool2d avg_pool2d conv1d conv2d fft.fft fft.rfft unfold repeat expand",
        r"must be (tuple|list) of ints|invalid combination", "one number stands for several",
    ),
    Difference(
        "softmax log_softmax sum mean prod cumsum cumprod zeros ones full eye arange linspace "
        "tensor zeros_like full_like rand randint randperm new_zeros new_full "
        "nn.Linear nn.Conv2d nn.Embedding nn.LayerNorm nn.BatchNorm1d norm linalg.norm view",
        r"must be torch\.dtype, not type|invalid combination.*(dtype=type|\(type\))",
        "types of Python and NumPy name element types",
    ),
    Difference(
        "narrow select split chunk roll unfold topk kthvalue diagonal tril repeat size fft.fft "
        "fft.rfft std var randint histc embedding pad",
        r"not bool|got \(.*bool|of type bool", "True is the int 1, as it is in Python",
    ),
    # ---- element types
    Difference(
        "gather scatter scatter_add index_add index_fill index_select take embedding one_hot "
        "cross_entropy nll_loss multi_margin_loss __getitem__",
        r"Expected (dtype|a long|tensor for argument)|LongTensor|expected (scalar type|target)",
        "indices and labels are of any integer type",
    ),
    Difference("argmax argmin max min median mode sort argsort topk kthvalue cummax",
               r"bool (input|dtypes)|not implemented for 'Bool'", "False comes before True"),
    Difference("einsum linear cdist",
               r"same dtype|expected scalar type|must have the same|not implemented for",
               "operands of different types are promoted, as in a product written with *"),
    Difference("addmm lerp", r"same dtype, but got.*Half|expected dtype.*Half",
               "16-bit operands are widened before they meet others"),
    Difference("layer_norm batch_norm", r"mixed dtype|expected scalar type",
               "weights and statistics are promoted, as in the formula written out"),
    Difference("binary_cross_entropy binary_cross_entropy_with_logits",
               r"Found dtype|two bool tensors|expected scalar type|not implemented for|"
               r"can't be cast to the desired output type",
               "classes given as bools or ints are 0 and 1"),
    Difference("trace", r"not implemented for 'Bool'", "the number of True, as in a sum"),
    Difference("multi_margin_loss", r"not implemented for", "scores are of any real type"),
    Difference("interpolate", r"not implemented for",
               "the nearest of ints and complex numbers, such as classes of pixels, is one"),
    # ---- no elements
    Difference("interpolate max_pool2d avg_pool2d group_norm conv1d conv2d",
               r"[Nn]on-empty|non-zero size|optional 0 dim batch|at least 1 at dimension 0",
               "no channels give no channels"),
    Difference("fft.rfft fft.fft", r"MKL FFT error", "no rows have no spectra"),
    # ---- arithmetic
    Difference("linalg.solve linalg.inv", r"singular|inversion could not be completed",
               "a matrix whose rounded factors have no zero is solved"),
)  # fmt: skip

# What we say where we refuse and torch does not.
REFUSED = (
    Difference("linalg.solve linalg.inv", r"[Ss]ingular", "rounded factors of ours have a zero"),
    Difference("__int__", r"not 'complex'", "as Python's int(); torch drops what is imaginary"),
    Difference("__getitem__ __setitem__", r"is no index",
               "torch cuts the floats of a list to ints"),
    Difference("copy_", r"complex number does not fit", "torch drops what is imaginary"),
    Difference("Dropout nn.Dropout", r"not nan", "a chance of nan drops anything"),
    Difference("kl_div mse_loss", r"reduction", "a reduction is named, also where torch takes any"),
    Difference("softmax log_softmax", r"an element type or None", "torch never looks at it"),
    Difference("", r"unexpected keyword argument 'out'", "there is no `out=`"),
    Difference("", r"a number as its order", "True is no order of a norm"),
    Difference("binary_cross_entropy_with_logits", r"real floating values, got complex",
               "no chance is a complex number"),
    Difference("__getitem__ __setitem__", r"cannot make a tensor from list: \[None",
               "a list is an index of its elements, as in NumPy; torch takes some for tuples"),
    Difference("squeeze", r"positional argument", "several axes are given as one tuple"),
    Difference("nn.BatchNorm1d", r"a size is an int, not", "torch takes what has no use as a size"),
    Difference("searchsorted", r"one element type", "torch compares bits of unlike types"),
    Difference("cummax roll", r"does not exist in a tensor", "also of no elements an axis exists"),
    Difference("index_add", r"is outside axis", "also of no elements an index is in range"),
    Difference("batch_norm", r"of 0 channels", "statistics fit the channels, also of none"),
    Difference("glu", r"positive size", "halves of nothing"),
    Difference("nn.LayerNorm", r"ints are needed", "text and mappings are no sizes"),
    Difference("nn.Conv2d", r"expected one number|ints are needed|not iterable|a size is an int",
               "windows are looked at when a layer is made"),
    Difference("tensordot", r"positional argument", "there is no fourth argument"),
    Difference("", r"a size is an int, not bool", "True is no size"),
)  # fmt: skip

# Where both refuse, but with errors that different `except` clauses catch: torch's, then why.
OTHER_KIND = (
    Difference("index_select take kthvalue scatter scatter_add index_add cross_entropy avg_pool2d "
               "max_pool2d mv fft.fft fft.rfft", r"IndexError", "what is wrong is a shape"),
    Difference("index_fill", r"IndexError: .*Expected dtype", "what is wrong is a type"),
    Difference("normalize", r"IndexError: Dimension", "what is wrong is several axes"),
    Difference("max_pool2d", r"not implemented for 'Bool'", "what is wrong is a type"),
    Difference("nn.Embedding", r"IndexError: only integers", "what is wrong is a value"),
    Difference("squeeze", r"IndexError", "what is wrong is a second argument"),
    Difference("interpolate", r"NotImplementedError: Input Error", "what is wrong is a shape"),
    Difference("pad", r"NotImplementedError: Unrecognised", "an unknown name is a wrong value"),
)  # fmt: skip


# Where both give something else, and why.
OTHER_RESULTS = {
    "max min": "with axis=, the Array API's spelling, the values alone",
    "kthvalue": "of equal elements any one is the k-th",
    "softmax log_softmax": "the third argument is the element type",
    "binary_cross_entropy_with_logits": "in the wider type; torch gives that of the target",
    "cosine_similarity": "norms of operands of two types are torch's in the narrower",
    "rand randint randperm dropout": "random",
    "linalg.inv linalg.solve": "nearly singular matrices",
}
_OTHER = frozenset(name for names in OTHER_RESULTS for name in names.split())
_ULPS = 64  # compositions of a few roundings
_PRECISION = {"float16": 2**-10, "bfloat16": 2**-7, "float64": 2**-52, "complex128": 2**-52}

Results = Sequence[tuple[str, np.ndarray]]


def is_alike(call: Call, theirs: Results, ours: Results) -> bool:
    """True where types and shapes are equal and values are near, or the difference is meant."""
    if _name(call) in _OTHER:
        return True
    return len(theirs) == len(ours) and all(
        kind == own_kind
        and values.shape == own.shape
        and _near(values, own, _ULPS * _coarsest(call, kind))
        for (kind, values), (own_kind, own) in zip(theirs, ours)
    )


def _coarsest(call: Call, kind: str) -> float:
    """The precision of a result: torch computes parts in the types of single operands."""
    given = [v.dtype for v in (*call.args, *dict(call.kwargs).values()) if isinstance(v, Values)]
    return max(_PRECISION.get(kind, 2**-23), *[_PRECISION.get(name, 0.0) for name in given], 0.0)


def _near(values: np.ndarray, own: np.ndarray, error: float) -> bool:
    scale = float(np.abs(values[np.isfinite(values)]).max(initial=1.0))
    return bool(np.allclose(own, values, rtol=error, atol=error * scale, equal_nan=True))


def is_meant(call: Call, theirs: Exception | None, ours: Exception | None) -> bool:
    """True where one side refuses a call, and the difference is one that is meant."""
    known, error = (TAKEN, theirs) if ours is None else (REFUSED, ours)
    return error is not None and any(one.covers(call, error) for one in known)


def caught_alike(call: Call, theirs: Exception, ours: Exception) -> bool:
    """True where an `except` for torch's IndexError or NotImplementedError catches ours too."""
    for kind in (IndexError, NotImplementedError):
        if isinstance(theirs, kind) and not isinstance(ours, kind):
            return any(one.covers(call, theirs) for one in OTHER_KIND)
    return True
