"""Cases of views, aliases and writes in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tracing.value_cases import I64, A, R, case


@case("gapped unfold write", A(4, 6, d=I64))
def _gapped_unfold_write(t: Any, x: Any) -> Any:
    v = x.unfold(1, 1, 5)
    v.add_(v)
    return x


@case("dtype view then mutated", A(4, 6, d=I64))
def _dtype_view_then_mutated(t: Any, x: Any) -> Any:
    y = x.view(t.int32) * 2
    y.sub_(-4)
    x[:, 2:5] = 2
    return y.view(t.int64)


@case("squeeze then mutate", A(1))
def _squeeze_then_mutate(t: Any, x: Any) -> Any:
    a = x[0:1]
    b = a.squeeze()
    a[0] = 0
    a[0] = 2
    return b


@case("0-d write", np.array(2.0, np.float32))
def _0_d_write(t: Any, x: Any) -> Any:
    x[...] = 5
    x += 1
    x.mul_(2)
    return x


@case("flip inplace overlap", A(5))
def _flip_inplace_overlap(t: Any, x: Any) -> Any:
    x.copy_(x.flip(0))
    return x


@case("swap rows", A(3, 2))
def _swap_rows(t: Any, x: Any) -> Any:
    x[0], x[1] = x[1].clone(), x[0].clone()
    return x


@case("as_strided", A(10))
def _as_strided(t: Any, x: Any) -> Any:
    v = t.as_strided(x, (3, 4), (2, 1))
    w = v * 1
    x.add_(1)
    return w, v + 0


@case("as_strided write", A(10))
def _as_strided_write(t: Any, x: Any) -> Any:
    v = t.as_strided(x, (3, 2), (3, 1), 1)
    v.add_(10)
    return x


@case("index put dup", A(4), np.array([0, 0, 1], np.int64))
def _index_put_dup(t: Any, x: Any, i: Any) -> Any:
    x[i] += 1
    y = x.clone()
    y.index_put_((i,), t.ones(3), accumulate=True)
    return x, y


@case("y[x]+=y[x]", A(2, 3), np.array([[0, 0]], np.int64))
def _y_x_y_x(t: Any, y: Any, x: Any) -> Any:
    y[x] += y[x]
    return y


@case("negative index", A(5), np.array([-1, -5, 2], np.int64))
def _negative_index(t: Any, x: Any, i: Any) -> Any:
    return x[i], t.index_select(x, 0, i % 5)


@case("bool mask assign", A(3, 3))
def _bool_mask_assign(t: Any, x: Any) -> Any:
    x[x > 4] = 0
    x[:, t.tensor([True, False, True])] += 1
    return x


@case("chained views write", A(4, 4))
def _chained_views_write(t: Any, x: Any) -> Any:
    x.T[1:3].transpose(0, 1)[::2].mul_(-1)
    return x


@case("diagonal write", A(4, 4))
def _diagonal_write(t: Any, x: Any) -> Any:
    x.diagonal().zero_()
    x.diagonal(1).add_(5)
    return x


@case("real write", (R(3) + 1j * R(3)).astype(np.complex64))
def _real_write(t: Any, x: Any) -> Any:
    x.real.zero_()
    x.imag.mul_(2)
    return x, x.abs(), t.view_as_real(x)


@case("detach write through", A(3))
def _detach_write_through(t: Any, x: Any) -> Any:
    d = x.detach()
    d.add_(1)
    x.data.mul_(2)
    return x, d


@case("inplace on leaf nograd", A(3))
def _inplace_on_leaf_nograd(t: Any, x: Any) -> Any:
    w = x.clone().requires_grad_()
    (w * w).sum().backward()
    with t.no_grad():
        w -= 0.1 * w.grad
    return w


@case("inplace after use in graph", A(3) + 1)
def _inplace_after_use_in_graph(t: Any, x: Any) -> Any:
    w = x.clone().requires_grad_()
    y = w * 2
    z = y + 0
    y.add_(5)
    (y * z).sum().backward()
    return w.grad


@case("grad through view write", A(2, 3))
def _grad_through_view_write(t: Any, x: Any) -> Any:
    w = x.clone().requires_grad_()
    y = w * 1
    y[0] = w[1] * 2
    y[:, 1].mul_(3)
    y.sum().backward()
    return w.grad, y


@case("gather 2d", A(3, 4), np.array([[0, 3], [1, 1], [2, 0]], np.int64))
def _gather_2d(t: Any, x: Any, i: Any) -> Any:
    return t.gather(x, 1, i), t.take_along_dim(x, i, 1)


@case("scatter dup add", np.zeros(3, np.float32), np.array([0, 0, 2], np.int64))
def _scatter_dup_add(t: Any, x: Any, i: Any) -> Any:
    return (
        x.scatter_add(0, i, t.ones(3)),
        x.scatter_reduce(0, i, t.arange(3.0) + 1, "prod", include_self=False),
        x.scatter_reduce(0, i, t.arange(3.0) + 1, "mean", include_self=False),
    )


@case("setitem broadcast", A(2, 3, 4))
def _setitem_broadcast(t: Any, x: Any) -> Any:
    x[:, 1] = t.arange(4.0)
    x[0, :, ::2] = t.tensor([[1.0], [2], [3]])
    x[1] = 7
    return x


@case("setitem cast", A(3, d=np.int32))
def _setitem_cast(t: Any, x: Any) -> Any:
    x[0] = 2.7
    x[1] = True
    x.add_(1)
    return x


@case("out of place views alias", A(4))
def _out_of_place_views_alias(t: Any, x: Any) -> Any:
    a = x.view(2, 2)
    b = a.T
    c = b.reshape(-1)
    c.add_(100)
    a.add_(1)
    return x, b, c


@case("contiguous of contiguous is same", A(4))
def _contiguous_of_contiguous_is_same(t: Any, x: Any) -> Any:
    y = x.contiguous()
    y.add_(1)
    z = x.to(t.float32)
    z.add_(1)
    return x


@case("float() same type alias", A(4))
def _float_same_type_alias(t: Any, x: Any) -> Any:
    y = x.float()
    y.mul_(2)
    return x


@case("reshape alias", A(4))
def _reshape_alias(t: Any, x: Any) -> Any:
    y = x.reshape(2, 2)
    y[0] = 9
    z = x.flatten()
    z[3] = 5
    return x


@case("expand then clone write", A(3))
def _expand_then_clone_write(t: Any, x: Any) -> Any:
    y = x.expand(2, 3).clone()
    y[0] = 9
    return x, y


@case("chunk views", A(6))
def _chunk_views(t: Any, x: Any) -> Any:
    a, b = x.chunk(2)
    a.copy_(b)
    b.zero_()
    return x


@case("unbind views", A(2, 3))
def _unbind_views(t: Any, x: Any) -> Any:
    a, b = x.unbind(0)
    a += b
    return x


@case("split views loop", A(6))
def _split_views_loop(t: Any, x: Any) -> Any:
    for i, p in enumerate(x.split(2)):
        p.mul_(i)
    return x
