"""Every differentiable public function with operands away from its kinks; the others, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.tensors import dispatch


def draw(*shape: int, seed: int = 0) -> Any:
    """Distinct numbers between 0.2 and 0.9 with no two closer than differences reach."""
    count = int(np.prod(shape))
    order = np.random.default_rng(seed).permutation(count)
    return (0.2 + 0.07 * seed / 10 + 0.65 * (order + 0.5) / max(count, 1)).reshape(shape)


def _names(text: str) -> list[str]:
    return text.split()


def body_of(name: str) -> Callable[..., Any]:
    """A function by its name in the table; a method as a function of its tensor."""
    if name.startswith("Tensor."):
        method = name.removeprefix("Tensor.")
        return lambda x, *args, **kwargs: getattr(x, method)(*args, **kwargs)
    space, _, own = name.rpartition(".")
    functions = dispatch.NAMESPACES[space] if space else dispatch.FUNCTIONS
    return functions[own]


UNARY = _names("""
neg sqrt rsqrt reciprocal square exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh erf
abs sign floor ceil trunc round frac nan_to_num sigmoid logsigmoid logit relu relu6 leaky_relu elu
celu selu silu mish hardtanh softplus softsign gelu conj real sgn resolve_neg ravel flatten positive
asin acos atan asinh acosh atanh deg2rad rad2deg erfc erfinv i0 special.erfcx special.i0e special.i1
special.i1e special.ndtri special.log_ndtr special.bessel_j0 special.bessel_j1 special.bessel_y0
special.bessel_y1 special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0
special.modified_bessel_k1 special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1
lgamma special.gammaln digamma special.psi special.expit special.ndtr special.entr sinc
atleast_1d atleast_2d atleast_3d alias_copy sum prod nansum
""")

BINARY = _names("""
add sub rsub mul div floor_divide remainder fmod pow float_power maximum minimum fmax fmin atan2
hypot logaddexp logaddexp2 copysign xlogy special.xlog1py dist
""")

REDUCING = _names("""
mean var std var_mean std_mean amax amin max min norm softmax log_softmax softmin logsumexp
normalize cumsum cumulative_sum cumprod logcumsumexp cummax cummin diff median nanmedian mode sort
nanmean aminmax trapezoid cumulative_trapezoid unbind unbind_copy
linalg.vector_norm masked.sum masked.prod masked.cumsum masked.cumprod masked.amax masked.amin
masked.mean masked.median masked.var masked.std masked.softmax masked.log_softmax masked.softmin
masked.logsumexp
""")

_M, _N, _V = draw(3, 4), draw(4, 2, seed=1), draw(4, seed=2)
_S = draw(3, 3) + 2 * np.eye(3)
_SPD = _S @ _S.T + np.eye(3)
_B = draw(2, 3, 4)
_Z = draw(3, 4) + 1j * draw(3, 4, seed=3)
_IMAGE, _VOLUME, _LINE = draw(1, 2, 5, 6), draw(1, 1, 4, 4, 4), draw(1, 2, 7)
_I = np.array([2, 0, 1, 2])
F = rl.nn.functional
L = rl.linalg


_place = "cpu"  # the device of the operands inside cases


@contextmanager
def operands_on(place: str) -> Iterator[None]:
    """Inside, cases make their further operands on a device."""
    global _place
    before, _place = _place, place
    try:
        yield
    finally:
        _place = before


def _index(values: Any) -> Any:
    return rl.tensor(np.array(values), device=_place)


def _like(values: Any, other: Any) -> Any:
    """A further operand, of an operand's type."""
    return rl.tensor(values, dtype=other.dtype, device=_place)


def _symmetric(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda a: function(a + a.mT)


CASES: dict[str, tuple[Any, ...]] = {
    "where": (lambda a, b: rl.where(a > b, a, b), _M, draw(3, 4, seed=1)),
    "Tensor.where": (lambda a, b: a.where(a > b, b), _M, draw(3, 4, seed=1)),
    "copy_": (lambda a, b: (a * 2).copy_(b), _M, draw(3, 4, seed=1)),
    "masked_fill": (lambda a: a.masked_fill(a > 0.5, 2.0), _M),
    "clamp": (lambda a: a.clamp(0.3, 0.6), _M),
    "clamp_min": (lambda a: a.clamp_min(0.5), _M),
    "clamp_max": (lambda a: a.clamp_max(0.5), _M),
    "clip": (lambda a: a.clip(0.3, 0.6), _M),
    "lerp": (rl.lerp, _M, draw(3, 4, seed=1), draw(3, 4, seed=2)),
    "addcmul": (rl.addcmul, _M, draw(3, 4, seed=1), draw(3, 4, seed=2)),
    "addcdiv": (rl.addcdiv, _M, draw(3, 4, seed=1), draw(3, 4, seed=2)),
    "_safe_softmax": (lambda a: rl._safe_softmax(a, 1), _M),
    "_attention": (
        lambda q, k, v: dispatch.FUNCTIONS["_attention"](q, k, v, None, 0.7, True),
        draw(4, 3, 2), draw(2, 3, 2, seed=1), draw(2, 3, 2, seed=2),
    ),
    "istft": (
        lambda x, y: rl.istft(rl.complex(x, y), 6, window=_like(np.hamming(7)[:6], x)),
        draw(2, 4, 5), draw(2, 4, 5, seed=1),
    ),
    "cosh of complex numbers": (rl.cosh, _Z),
    "sinh of complex numbers": (rl.sinh, _Z),
    "matmul": (rl.matmul, _B, _N),
    "mm": (rl.mm, _M, _N),
    "bmm": (rl.bmm, _B, draw(2, 4, 2)),
    "mv": (rl.mv, _M, _V),
    "dot": (rl.dot, _V, draw(4)),
    "vdot": (rl.vdot, _V, draw(4)),
    "inner": (rl.inner, _M, draw(2, 4)),
    "outer": (rl.outer, _V, draw(3)),
    "addmm": (rl.addmm, draw(3, 2), _M, _N),
    "addmv": (rl.addmv, draw(3), _M, _V),
    "addr": (rl.addr, _M, draw(3), _V),
    "addbmm": (rl.addbmm, draw(3, 2), _B, draw(2, 4, 2)),
    "baddbmm": (rl.baddbmm, draw(2, 3, 2), _B, draw(2, 4, 2)),
    "linear": (F.linear, _M, draw(2, 4), draw(2)),
    "einsum": (lambda a, b: rl.einsum("bij,jk->bki", a, b), _B, _N),
    "tensordot": (lambda a, b: rl.tensordot(a, b, 1), _B, _N),
    "kron": (rl.kron, draw(2, 2), _M),
    "cross": (rl.cross, draw(4, 3), draw(4, 3, seed=1)),
    "linalg.cross": (L.cross, draw(4, 3), draw(4, 3, seed=1)),
    "linalg.vecdot": (L.vecdot, _M, draw(3, 4, seed=1)),
    "linalg.multi_dot": (lambda *a: L.multi_dot(a), _M, _N, draw(2, 3)),
    "chain_matmul": (lambda *a: rl.chain_matmul(*a), _M, _N, draw(2, 3)),
    "linalg.vander": (L.vander, _V),
    "vander": (rl.vander, _V),
    "cdist": (rl.cdist, _M, draw(2, 4, seed=5)),
    "pdist": (rl.pdist, _M),
    "cov": (rl.cov, _M),
    "corrcoef": (rl.corrcoef, draw(3, 4) ** 2),
    "cosine_similarity": (rl.cosine_similarity, _M, draw(3, 4, seed=1)),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), _LINE, draw(3, 2, 3)),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), _IMAGE, draw(3, 2, 3, 3)),
    "conv3d": (F.conv3d, _VOLUME, draw(2, 1, 2, 2, 2)),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, padding=1), _LINE, draw(2, 3, 3)),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1),
        _IMAGE,
        draw(2, 3, 3, 3),
    ),
    "conv_transpose3d": (F.conv_transpose3d, _VOLUME, draw(1, 2, 2, 2, 2)),
    "reshape": (lambda a: a.reshape(4, 3), _M),
    "Tensor.view": (lambda a: a.view(2, 6), _M),
    "Tensor.view_as": (lambda a: a.view_as(rl.zeros(4, 3)), _M),
    "Tensor.reshape_as": (lambda a: a.reshape_as(rl.zeros(4, 3)), _M),
    "unflatten": (lambda a: a.unflatten(1, (2, 2)), _M),
    "permute": (lambda a: a.permute(2, 0, 1), _B),
    "transpose": (lambda a: a.transpose(0, 2), _B),
    "t": (rl.t, _M),
    "adjoint": (lambda a: a.adjoint(), _B),
    "movedim": (lambda a: a.movedim(0, 2), _B),
    "squeeze": (rl.squeeze, draw(1, 3)),
    "unsqueeze": (lambda a: a.unsqueeze(1), _M),
    "Tensor.expand": (lambda a: a.expand(2, 3, 4), _M),
    "Tensor.expand_as": (lambda a: a.expand_as(rl.zeros(2, 3, 4)), _M),
    "broadcast_to": (lambda a: rl.broadcast_to(a, (2, 3, 4)), _M),
    "broadcast_tensors": (lambda a, b: rl.broadcast_tensors(a, b), _M, _V),
    "Tensor.sum_to_size": (lambda a: a.sum_to_size(1, 4), _M),
    "narrow": (lambda a: a.narrow(1, 1, 2), _M),
    "select": (lambda a: a.select(1, 1), _M),
    "split": (lambda a: a.split(3, 1), _M),
    "chunk": (lambda a: a.chunk(2, 1), _M),
    "tensor_split": (lambda a: a.tensor_split(2, 1), _M),
    "split_with_sizes": (lambda a: a.split_with_sizes([1, 3], 1), _M),
    "hsplit": (lambda a: a.hsplit(2), _M),
    "vsplit": (lambda a: a.vsplit(3), _M),
    "dsplit": (lambda a: a.dsplit(2), _B),
    "unsafe_chunk": (lambda a: a.unsafe_chunk(2, 1), _M),
    "unsafe_split": (lambda a: a.unsafe_split(3, 1), _M),
    "cat": (lambda *a: rl.cat(a, 1), _M, draw(3, 2)),
    "_chunk_cat": (lambda *a: body_of("_chunk_cat")(list(a), 0, 2), _M, draw(2, 4)),
    "stack": (lambda *a: rl.stack(a, 1), _M, draw(3, 4, seed=1)),
    "vstack": (lambda *a: rl.vstack(a), _M, draw(1, 4)),
    "hstack": (lambda *a: rl.hstack(a), _M, draw(3, 1)),
    "dstack": (lambda *a: rl.dstack(a), _M, draw(3, 4)),
    "column_stack": (lambda *a: rl.column_stack(a), _M, draw(3)),
    "block_diag": (rl.block_diag, _M, draw(2, 2)),
    "cartesian_prod": (rl.cartesian_prod, draw(2), draw(3)),
    "combinations": (rl.combinations, _V),
    "meshgrid": (lambda a, b: rl.meshgrid(a, b, indexing="ij"), _V, draw(3)),
    "Tensor.repeat": (lambda a: a.repeat(2, 1), _M),
    "repeat": (lambda a: rl.repeat(a, 2, axis=1), _M),
    "repeat_interleave": (lambda a: a.repeat_interleave(2, 1), _M),
    "tile": (lambda a: a.tile(2, 1), _M),
    "roll": (lambda a: a.roll(1, 1), _M),
    "rot90": (rl.rot90, _M),
    "fliplr": (rl.fliplr, _M),
    "flipud": (rl.flipud, _M),
    "pad": (lambda a: F.pad(a, (1, 2), mode="reflect"), _LINE),
    "constant_pad_nd": (lambda a: rl.constant_pad_nd(a, (1, 2), 3.0), _M),
    "tril": (rl.tril, _M),
    "triu": (rl.triu, _M),
    "diagonal": (rl.diagonal, _M),
    "diag": (rl.diag, _M),
    "diag_embed": (rl.diag_embed, _M),
    "diagflat": (rl.diagflat, _V),
    "trace": (rl.trace, _M),
    "diagonal_scatter": (rl.diagonal_scatter, _M, draw(3)),
    "select_scatter": (lambda a, b: a.select_scatter(b, 0, 1), _M, _V),
    "slice_scatter": (lambda a, b: a.slice_scatter(b, 1, 0, 2), _M, draw(3, 2)),
    "as_strided": (lambda a: a.as_strided((2, 2), (2, 1)), _M),
    "as_strided_scatter": (lambda a, b: a.as_strided_scatter(b, (2, 2), (4, 1)), _M, draw(2, 2)),
    "Tensor.unfold": (lambda a: a.unfold(1, 2, 1), _M),
    "expand_copy": (lambda a: rl.expand_copy(a, (2, 3, 4)), _M),
    "diagonal_copy": (rl.diagonal_copy, _M),
    "narrow_copy": (lambda a: rl.narrow_copy(a, 1, 1, 2), _M),
    "permute_copy": (lambda a: rl.permute_copy(a, (1, 0)), _M),
    "split_with_sizes_copy": (lambda a: rl.split_with_sizes_copy(a, [1, 3], 1), _M),
    "split_copy": (lambda a: rl.split_copy(a, 3, 1), _M),
    "unfold_copy": (lambda a: rl.unfold_copy(a, 1, 2, 1), _M),
    "squeeze_copy": (rl.squeeze_copy, draw(1, 3)),
    "unsqueeze_copy": (lambda a: rl.unsqueeze_copy(a, 1), _M),
    "transpose_copy": (lambda a: rl.transpose_copy(a, 0, 1), _M),
    "t_copy": (rl.t_copy, _M),
    "as_strided_copy": (lambda a: rl.as_strided_copy(a, (2, 2), (2, 1)), _M),
    "view_copy": (lambda a: rl.view_copy(a, (4, 3)), _M),
    "avg_pool1d": (lambda a: F.avg_pool1d(a, 2), _LINE),
    "avg_pool2d": (lambda a: F.avg_pool2d(a, 2), _IMAGE),
    "avg_pool3d": (lambda a: F.avg_pool3d(a, 2), _VOLUME),
    "lp_pool1d": (lambda a: F.lp_pool1d(a, 2.0, 2), _LINE),
    "lp_pool2d": (lambda a: F.lp_pool2d(a, 2.0, 2), _IMAGE),
    "lp_pool3d": (lambda a: F.lp_pool3d(a, 2.0, 2), _VOLUME),
    "max_pool1d": (lambda a: F.max_pool1d(a, 2), _LINE),
    "max_pool2d": (lambda a: F.max_pool2d(a, 2), _IMAGE),
    "max_pool3d": (lambda a: F.max_pool3d(a, 2), _VOLUME),
    "adaptive_avg_pool1d": (lambda a: F.adaptive_avg_pool1d(a, 3), _LINE),
    "adaptive_avg_pool2d": (lambda a: F.adaptive_avg_pool2d(a, 3), _IMAGE),
    "adaptive_avg_pool3d": (lambda a: F.adaptive_avg_pool3d(a, 3), _VOLUME),
    "adaptive_max_pool1d": (lambda a: F.adaptive_max_pool1d(a, 3), _LINE),
    "adaptive_max_pool2d": (lambda a: F.adaptive_max_pool2d(a, 3), _IMAGE),
    "adaptive_max_pool3d": (lambda a: F.adaptive_max_pool3d(a, 3), _VOLUME),
    "gather": (lambda a: a.gather(0, _index([[0, 1, 2, 0], [2, 2, 1, 0]])), _M),
    "take_along_dim": (lambda a: a.take_along_dim(_index([[0, 1, 2, 0]]), 0), _M),
    "index_select": (lambda a: a.index_select(0, _index(_I)), _M),
    "take": (lambda a: a.take(_index(_I)), _M),
    "index_put": (lambda a, b: a.index_put((_index([0, 2]),), b, True), _M, draw(2, 4)),
    "index_add": (lambda a, b: a.index_add(0, _index([0, 0]), b), _M, draw(2, 4)),
    "index_copy": (lambda a, b: a.index_copy(0, _index([0, 2]), b), _M, draw(2, 4)),
    "index_fill": (lambda a: a.index_fill(0, _index([0, 2]), 1.0), _M),
    "index_reduce": (
        lambda a, b: a.index_reduce(0, _index([0, 0]), b, "prod"), _M, draw(2, 4, seed=2)),
    "scatter": (lambda a, b: a.scatter(0, _index([[0, 1, 2, 0]]), b), _M, draw(1, 4)),
    "scatter_add": (lambda a, b: a.scatter_add(0, _index([[0, 1, 2, 0]] * 2), b), _M, draw(2, 4)),
    "scatter_reduce": (
        lambda a, b: a.scatter_reduce(0, _index([[0, 1, 2, 0]] * 2), b, "mean"), _M, draw(2, 4)),
    "put": (lambda a, b: a.put(_index([0, 5]), b), _M, draw(2)),
    "masked_scatter": (lambda a, b: a.masked_scatter(a > 0.5, b), _M, draw(12)),
    "masked_select": (lambda a: a.masked_select(a > 0.5), _M),
    "polar": (rl.polar, _M, draw(3, 4, seed=1)),
    "complex": (rl.complex, _M, draw(3, 4, seed=1)),
    "imag": (rl.imag, _Z),
    "angle": (rl.angle, _Z),
    "view_as_real": (rl.view_as_real, _Z),
    "view_as_complex": (rl.view_as_complex, draw(3, 2)),
    "gradient": (rl.gradient, _M),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (4,), w, b), _M, _V, draw(4)),
    "rms_norm": (lambda a, w: F.rms_norm(a, (4,), w), _M, _V),
    "native_layer_norm": (lambda a, w, b: rl.native_layer_norm(a, (4,), w, b, 1e-5), _M, _V, _V),
    "binary_cross_entropy": (F.binary_cross_entropy, _M, draw(3, 4, seed=1)),
    "binary_cross_entropy_with_logits": (
        F.binary_cross_entropy_with_logits, _M, draw(3, 4, seed=1)),
    "nll_loss": (lambda a: F.nll_loss(a.log_softmax(1), _index([0, 3, 1])), _M),
    "cross_entropy": (lambda a: F.cross_entropy(a, _index([0, 3, 1])), _M),
    "topk": (lambda a: a.topk(2, 1).values, _M),
    "kthvalue": (lambda a: a.kthvalue(2, 1).values, _M),
    "msort": (rl.msort, _M),
    "quantile": (lambda a: a.quantile(0.3, 1), _M),
    "nanquantile": (lambda a: a.nanquantile(0.3, 1), _M),
    "renorm": (lambda a: a.renorm(2, 0, 0.7), _M),
    "fill": (lambda a, b: rl.fill(a, b), _M, draw()),
    "ldexp": (lambda a: rl.ldexp(a, _index([1, 2, 3, -1])), _M),
    "frexp": (lambda a: rl.frexp(a)[0], _M),
    "polygamma": (lambda a: rl.polygamma(1, a), _M),
    "mvlgamma": (lambda a: rl.mvlgamma(a, 2), _M + 1),
    "special.multigammaln": (lambda a: rl.special.multigammaln(a, 2), _M + 1),
    "igamma": (lambda a: rl.igamma(_like(draw(3, 4, seed=1), a), a), _M),
    "igammac": (lambda a: rl.igammac(_like(draw(3, 4, seed=1), a), a), _M),
    "special.gammainc": (lambda a: rl.special.gammainc(_like(draw(3, 4, seed=1), a), a), _M),
    "special.gammaincc": (lambda a: rl.special.gammaincc(_like(draw(3, 4, seed=1), a), a), _M),
    "special.zeta": (lambda a: rl.special.zeta(_like(2.5, a), a), _M),
    "linalg.inv": (L.inv, _S),
    "inverse": (rl.inverse, _S),
    "linalg.inv_ex": (lambda a: L.inv_ex(a)[0], _S),
    "linalg.solve": (L.solve, _S, draw(3, 2)),
    "linalg.solve_ex": (lambda a, b: L.solve_ex(a, b)[0], _S, draw(3, 2)),
    "linalg.solve_triangular": (
        lambda a, b: L.solve_triangular(a, b, upper=True), _S, draw(3, 2)),
    "triangular_solve": (lambda a, b: rl.triangular_solve(b, a)[0], _S, draw(3, 2)),
    "linalg.det": (L.det, _S),
    "det": (rl.det, _S),
    "logdet": (rl.logdet, _SPD),
    "linalg.slogdet": (lambda a: L.slogdet(a)[1], _S),
    "slogdet": (lambda a: rl.slogdet(a)[1], _S),
    "linalg.cholesky": (_symmetric(L.cholesky), _SPD),
    "cholesky": (_symmetric(rl.cholesky), _SPD),
    "linalg.cholesky_ex": (_symmetric(lambda a: L.cholesky_ex(a)[0]), _SPD),
    "cholesky_solve": (lambda b, a: rl.cholesky_solve(b, a.tril()), draw(3, 2), _S),
    "cholesky_inverse": (lambda a: rl.cholesky_inverse(a.tril()), _S),
    "linalg.qr": (lambda a: L.qr(a), draw(4, 3)),
    "qr": (lambda a: rl.qr(a), draw(4, 3)),
    "linalg.eigh": (_symmetric(lambda a: L.eigh(a)[0]), _S),
    "linalg.eigvalsh": (_symmetric(L.eigvalsh), _S),
    "linalg.eigvals": (lambda a: L.eigvals(a).abs(), _S),
    "linalg.eig": (lambda a: L.eig(a)[0].abs(), _S),
    "linalg.svd": (lambda a: L.svd(a, full_matrices=False)[1], draw(4, 3)),
    "svd": (lambda a: rl.svd(a)[1], draw(4, 3)),
    "linalg.svdvals": (L.svdvals, draw(4, 3)),
    "linalg.lu_factor": (lambda a: L.lu_factor(a)[0], _S),
    "linalg.lu_factor_ex": (lambda a: L.lu_factor_ex(a)[0], _S),
    "Tensor.lu": (lambda a: a.lu()[0], _S),
    "linalg.lu": (lambda a: L.lu(a)[1:], _S),
    "linalg.pinv": (L.pinv, draw(4, 3)),
    "pinverse": (rl.pinverse, draw(4, 3)),
    "matrix_exp": (rl.matrix_exp, _M[:, :3]),
    "linalg.matrix_exp": (L.matrix_exp, _M[:, :3]),
    "linalg.matrix_power": (lambda a: L.matrix_power(a, 3), _S),
    "matrix_power": (lambda a: rl.matrix_power(a, -2), _S),
    "linalg.matrix_norm": (L.matrix_norm, _M),
    "linalg.norm": (L.norm, _M),
    "linalg.cond": (L.cond, _S),
    "linalg.tensorinv": (lambda a: L.tensorinv(a, 1), _S),
    "linalg.tensorsolve": (L.tensorsolve, _S, draw(3)),
    "linalg.lstsq": (lambda a, b: L.lstsq(a, b)[0], draw(4, 3), draw(4, 2)),
    **{
        f"fft.{name}": (body_of(f"fft.{name}"), _Z)
        for name in _names(
            "fft ifft hfft irfft fft2 ifft2 hfft2 irfft2 fftn ifftn hfftn irfftn fftshift ifftshift"
        )
    },
    **{
        f"fft.{name}": (body_of(f"fft.{name}"), _M)
        for name in _names("rfft ihfft rfft2 ihfft2 rfftn ihfftn")
    },
    "masked.norm": (lambda a: rl.masked.norm(a, 2.0, 1), _M),
    "masked.normalize": (lambda a: rl.masked.normalize(a, 2.0, 1), _M),
    "masked.logaddexp": (rl.masked.logaddexp, _M, draw(3, 4, seed=1)),
    "grid_sample": (
        lambda a, g: F.grid_sample(a, g, align_corners=False), _IMAGE, draw(1, 3, 3, 2)),
    "affine_grid": (lambda t: F.affine_grid(t, [1, 1, 3, 3], align_corners=False), draw(1, 2, 3)),
    "stft": (
        lambda a: rl.stft(a, 4, return_complex=True, window=_like(np.ones(4), a)),
        draw(12)),
    "Tensor._cast": (lambda a: a.type(rl.complex128) * 1j, _M),
    "_embedding": (lambda w: F.embedding(_index(_I), w), _M),
    "linear_cross_entropy": (
        lambda a, w: F.linear_cross_entropy(a, w, _index([0, 1, 1])), _M, draw(2, 4)),
    "_embedding_bag": (
        lambda w: F.embedding_bag(_index(_I), w, _index([0, 2]), mode="mean"), _M),
    "flip": (lambda a: a.flip(0, 1), _M),
    "mse_loss": (F.mse_loss, _M, draw(3, 4, seed=1)),
    "huber_loss": (lambda a, b: F.huber_loss(a, b, delta=0.3), _M, draw(3, 4, seed=1)),
    "_reduced": (lambda a: rl._reduced(a * a, "mean"), _M),
    "l1_loss": (F.l1_loss, _M, draw(3, 4, seed=1)),
    "smooth_l1_loss": (F.smooth_l1_loss, _M, draw(3, 4, seed=1)),
    "linalg.householder_product": (L.householder_product, draw(4, 3), draw(3)),
    "orgqr": (rl.orgqr, draw(4, 3), draw(3)),
    "ormqr": (rl.ormqr, draw(4, 3), draw(3), draw(4, 2)),
    "nn.functional.fractional_max_pool2d": (
        lambda a: F.fractional_max_pool2d(
            a, 2, output_size=3, _random_samples=_like([[[0.3, 0.6]] * 2], a)
        ),
        _IMAGE),
    "nn.functional.fractional_max_pool3d": (
        lambda a: F.fractional_max_pool3d(
            a, 2, output_size=2, _random_samples=_like([[[0.3, 0.6, 0.2]]], a)
        ),
        _VOLUME),
    "max_unpool1d": (lambda a: F.max_unpool1d(*F.max_pool1d(a, 2, return_indices=True), 2), _LINE),
    "max_unpool2d": (lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2), _IMAGE),
    "max_unpool3d": (
        lambda a: F.max_unpool3d(*F.max_pool3d(a, 2, return_indices=True), 2), _VOLUME),
    "native_group_norm": (
        lambda a, w, b: rl.native_group_norm(a, w, b, 1, 4, 7, 2, 1e-5)[0],
        draw(1, 4, 7), draw(4), draw(4)),
    "native_batch_norm": (
        lambda a, w, b: rl.native_batch_norm(a, w, b, None, None, True, 0.1, 1e-5)[0],
        _M, _V, draw(4)),
    "_softmax_backward_data": (
        lambda g, y: body_of("_softmax_backward_data")(g, y, 1, g.dtype),
        _M, draw(3, 4, seed=1)),
    "linalg.lu_solve": (
        lambda a, b: L.lu_solve(*L.lu_factor(a), b), _S, draw(3, 2)),
    "lu_solve": (lambda a, b: rl.lu_solve(b, *L.lu_factor(a)), _S, draw(3, 2)),
    "lu_unpack": (lambda a: rl.lu_unpack(*L.lu_factor(a))[1:], _S),
    "grid_sampler_2d": (
        lambda a, g: rl.grid_sampler_2d(a, g, 0, 0, False), _IMAGE, draw(1, 3, 3, 2)),
    "grid_sampler_3d": (
        lambda a, g: rl.grid_sampler_3d(a, g, 0, 0, False), _VOLUME, draw(1, 2, 2, 2, 3)),
    "segment_reduce": (
        lambda a: rl.segment_reduce(a, "mean", lengths=_index([1, 2])), _M),
    "ctc_loss": (
        lambda a: F.ctc_loss(a.log_softmax(2), _index([[1, 2]]), _index([4]), _index([2])),
        draw(4, 1, 3)),
    **{
        f"nn.functional.{name}": (body_of(f"nn.functional.{name}"), _M)
        for name in _names(
            "glu hardsigmoid hardswish tanhshrink rrelu alpha_dropout feature_alpha_dropout"
        )
    },
    "nn.functional.hardshrink": (lambda a: F.hardshrink(a - 0.5, 0.11), _M),
    "nn.functional.softshrink": (lambda a: F.softshrink(a - 0.5, 0.11), _M),
    "nn.functional.threshold": (lambda a: F.threshold(a, 0.5, 2.0), _M),
    "nn.functional.prelu": (lambda a, w: F.prelu(a - 0.5, w), _M, _V),
    **{
        f"nn.functional.dropout{axes}d": (
            partial(body_of(f"nn.functional.dropout{axes}d"), training=False), operand)
        for axes, operand in enumerate((_LINE, _IMAGE, _VOLUME), 1)
    },
    "nn.functional.group_norm": (
        lambda a, w, b: F.group_norm(a, 2, w, b), draw(2, 4, 3), draw(4), draw(4)),
    "nn.functional.local_response_norm": (lambda a: F.local_response_norm(a, 2), _LINE),
    "nn.functional.pixel_shuffle": (lambda a: F.pixel_shuffle(a, 2), draw(1, 4, 2, 3)),
    "nn.functional.pixel_unshuffle": (lambda a: F.pixel_unshuffle(a, 2), draw(1, 1, 4, 6)),
    "nn.functional.channel_shuffle": (lambda a: F.channel_shuffle(a, 2), _LINE),
    "nn.functional.unfold": (lambda a: F.unfold(a, 2, padding=1, stride=2), _IMAGE),
    "nn.functional.fold": (lambda a: F.fold(a, (3, 4), 2), draw(1, 4, 6)),
    "nn.functional.interpolate": (lambda a: F.interpolate(a, size=(3, 8), mode="bicubic"), _IMAGE),
    "nn.functional.upsample": (lambda a: F.upsample(a, scale_factor=2), _LINE),
    "nn.functional.upsample_bilinear": (lambda a: F.upsample_bilinear(a, (3, 8)), _IMAGE),
    "nn.functional.upsample_nearest": (lambda a: F.upsample_nearest(a, (3, 8)), _IMAGE),
    "nn.functional.kl_div": (F.kl_div, _M, draw(3, 4, seed=1)),
    "nn.functional.poisson_nll_loss": (
        lambda a, b: F.poisson_nll_loss(a, b + 1, full=True), _M, draw(3, 4, seed=1)),
    "nn.functional.gaussian_nll_loss": (
        F.gaussian_nll_loss, _M, draw(3, 4, seed=1), draw(3, seed=2)),
    "nn.functional.soft_margin_loss": (F.soft_margin_loss, _M, draw(3, 4, seed=1)),
    "nn.functional.hinge_embedding_loss": (
        lambda a: F.hinge_embedding_loss(a, _index([1, -1, 1, -1])), _M),
    "nn.functional.margin_ranking_loss": (
        lambda a, b: F.margin_ranking_loss(a, b, a * 0 + 1), _M, draw(3, 4, seed=1)),
    "nn.functional.cosine_embedding_loss": (
        lambda a, b: F.cosine_embedding_loss(a, b, _index([1, -1, 1])), _M, draw(3, 4, seed=1)),
    "nn.functional.pairwise_distance": (F.pairwise_distance, _M, draw(3, 4, seed=1)),
    "nn.functional.triplet_margin_loss": (
        F.triplet_margin_loss, _M, draw(3, 4, seed=1), draw(3, 4, seed=2)),
    "nn.functional.multi_margin_loss": (
        lambda a: F.multi_margin_loss(a, _index([0, 3, 1])), _M),
    "nn.functional.multilabel_soft_margin_loss": (
        F.multilabel_soft_margin_loss, _M, draw(3, 4, seed=1)),
    "nn.functional.multilabel_margin_loss": (
        lambda a: F.multilabel_margin_loss(a, _index([[0, 2, -1, 1]] * 3)), _M),
    "nn.functional.bilinear": (F.bilinear, _M, draw(3, 2), draw(2, 4, 2), draw(2)),
    "nn.functional.grouped_mm": (
        lambda a, b: F.grouped_mm(a, b, offs=_index([1, 1, 3])), _M, draw(3, 4, 2)),
    "Tensor._pick": (lambda a: a[_index([0, 2]), _index([1, 1])], _M),
    "dropout": (lambda a: F.dropout(a, 0.5, training=False), _M),
}  # fmt: skip

# no second derivative there, or one that differences cannot see (steps, chosen elements)
ROUGH = frozenset(
    _names("""
linalg.eig linalg.eigvals linalg.cond linalg.pinv pinverse linalg.lstsq grid_sample grid_sampler_2d
grid_sampler_3d
""")
)

# no derivative by nature, or the inner form of a function that is checked under its other name
EXEMPT = frozenset(
    _names("""
lt le gt ge eq ne logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor
bitwise_not bitwise_left_shift bitwise_right_shift unravel_index isnan isinf isfinite argmax argmin
any all count_nonzero isreal nonzero argwhere nonzero_static unique unique_consecutive bincount isin
one_hot tril_indices triu_indices histc histogram histogramdd argsort searchsorted bucketize signbit
hash_tensor linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve
nextafter heaviside gcd lcm isposinf isneginf isclose allclose equal broadcast_shapes
linalg.matrix_rank masked.argmax masked.argmin special.airy_ai special.spherical_bessel_j0 geqrf
Tensor.cfloat Tensor.cdouble Tensor.embedding_renorm Tensor.uniform Tensor.normal bernoulli
Tensor.bernoulli Tensor.exponential Tensor.cauchy Tensor.log_normal Tensor.geometric Tensor.random
multinomial standard_gamma poisson _native_batch_norm_legit Tensor._masked_write _segment_reduce
_unsafe_masked_index _unsafe_masked_index_put_accumulate special.chebyshev_polynomial_t
special.chebyshev_polynomial_u special.chebyshev_polynomial_v special.chebyshev_polynomial_w
special.hermite_polynomial_h special.hermite_polynomial_he special.laguerre_polynomial_l
special.legendre_polynomial_p special.shifted_chebyshev_polynomial_t
special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
special.shifted_chebyshev_polynomial_w nn.functional.gumbel_softmax
""")
)
