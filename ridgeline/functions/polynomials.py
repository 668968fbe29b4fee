"""Orthogonal polynomials in the `special` namespace; the degree is an operand."""

from __future__ import annotations

from ridgeline.functions.operands import Operand, align, floating, result_type
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops.special import special


def _two(input: Operand, other: Operand) -> tuple[Node, Node]:
    a, b = align(input, other, dtype=floating(result_type(input, other)))
    return a, b


@public(namespace="special")
def chebyshev_polynomial_t(input: Operand, n: Operand) -> Node:
    """The Chebyshev polynomial of the first kind of degree n."""
    return special("chebyshev_polynomial_t", *_two(input, n))


@public(namespace="special")
def chebyshev_polynomial_u(input: Operand, n: Operand) -> Node:
    """The Chebyshev polynomial of the second kind of degree n."""
    return special("chebyshev_polynomial_u", *_two(input, n))


@public(namespace="special")
def chebyshev_polynomial_v(input: Operand, n: Operand) -> Node:
    """The Chebyshev polynomial of the third kind of degree n."""
    return special("chebyshev_polynomial_v", *_two(input, n))


@public(namespace="special")
def chebyshev_polynomial_w(input: Operand, n: Operand) -> Node:
    """The Chebyshev polynomial of the fourth kind of degree n."""
    return special("chebyshev_polynomial_w", *_two(input, n))


@public(namespace="special")
def hermite_polynomial_h(input: Operand, n: Operand) -> Node:
    """The physicist's Hermite polynomial of degree n."""
    return special("hermite_polynomial_h", *_two(input, n))


@public(namespace="special")
def hermite_polynomial_he(input: Operand, n: Operand) -> Node:
    """The probabilist's Hermite polynomial of degree n."""
    return special("hermite_polynomial_he", *_two(input, n))


@public(namespace="special")
def laguerre_polynomial_l(input: Operand, n: Operand) -> Node:
    """The Laguerre polynomial of degree n."""
    return special("laguerre_polynomial_l", *_two(input, n))


@public(namespace="special")
def legendre_polynomial_p(input: Operand, n: Operand) -> Node:
    """The Legendre polynomial of degree n."""
    return special("legendre_polynomial_p", *_two(input, n))


@public(namespace="special")
def shifted_chebyshev_polynomial_t(input: Operand, n: Operand) -> Node:
    """The Chebyshev polynomial of the first kind on [0, 1] of degree n."""
    return special("shifted_chebyshev_polynomial_t", *_two(input, n))


@public(namespace="special")
def shifted_chebyshev_polynomial_u(input: Operand, n: Operand) -> Node:
    """The Chebyshev polynomial of the second kind on [0, 1] of degree n."""
    return special("shifted_chebyshev_polynomial_u", *_two(input, n))


@public(namespace="special")
def shifted_chebyshev_polynomial_v(input: Operand, n: Operand) -> Node:
    """The Chebyshev polynomial of the third kind on [0, 1] of degree n."""
    return special("shifted_chebyshev_polynomial_v", *_two(input, n))


@public(namespace="special")
def shifted_chebyshev_polynomial_w(input: Operand, n: Operand) -> Node:
    """The Chebyshev polynomial of the fourth kind on [0, 1] of degree n."""
    return special("shifted_chebyshev_polynomial_w", *_two(input, n))
