"""Packed and padded sequences, and recurrent layers over them, against torch's."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.errors import ArgumentError, ShapeError
from ridgeline.nn.utils import rnn

torch = pytest.importorskip("torch")
theirs = torch.nn.utils.rnn


def sequences(lengths: tuple[int, ...], width: int = 3) -> list[np.ndarray]:
    draw = np.random.default_rng(0).standard_normal
    return [draw((length, width)).astype(np.float32) for length in lengths]


@pytest.mark.parametrize("lengths", [(4, 2, 1), (2, 4, 4, 1), (3,)])
def test_packing_and_padding(lengths: tuple[int, ...]) -> None:
    arrays = sequences(lengths)
    mine = rnn.pack_sequence([rl.tensor(a) for a in arrays], enforce_sorted=False)
    peer = theirs.pack_sequence([torch.tensor(a) for a in arrays], enforce_sorted=False)
    np.testing.assert_array_equal(mine.data.numpy(), peer.data.numpy())
    np.testing.assert_array_equal(mine.batch_sizes.numpy(), peer.batch_sizes.numpy())
    for total in (None, 6):
        ours = rnn.pad_packed_sequence(mine, True, -1.0, total)
        wanted = theirs.pad_packed_sequence(peer, True, -1.0, total)
        for a, b in zip(ours, wanted):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    for a, b in zip(rnn.unpack_sequence(mine), arrays):
        np.testing.assert_array_equal(a.numpy(), b)


def test_padding_on_the_left() -> None:
    arrays = sequences((2, 4))
    mine = rnn.pad_sequence([rl.tensor(a) for a in arrays], True, 7.0, "left")
    peer = theirs.pad_sequence([torch.tensor(a) for a in arrays], True, 7.0, "left")
    np.testing.assert_array_equal(mine.numpy(), peer.numpy())


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("jitted", [False, True])
def test_recurrent_layers_over_packed_sequences(kind: str, jitted: bool) -> None:
    arrays, lengths = sequences((2, 5, 3)), (2, 5, 3)
    peer = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=True)
    layer = getattr(rl.nn, kind)(3, 4, num_layers=2, bidirectional=True)
    layer.load_state_dict({k: v.numpy() for k, v in peer.state_dict().items()})

    def run(library, packing, model, *parts):
        padded = packing.pad_sequence(parts)
        packed = packing.pack_padded_sequence(padded, list(lengths), enforce_sorted=False)
        output, last = model(packed)
        return packing.pad_packed_sequence(output)[0], last

    ours = [rl.tensor(a, requires_grad=True) for a in arrays]
    given = [torch.tensor(a, requires_grad=True) for a in arrays]

    def forward(*parts):
        return run(rl, rnn, layer, *parts)

    output, last = (rl.jit(forward) if jitted else forward)(*ours)
    wanted, wanted_last = run(torch, theirs, peer, *given)
    np.testing.assert_allclose(output.detach().numpy(), wanted.detach().numpy(), atol=1e-6)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (last, wanted_last))):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-6)
    if not jitted:
        (output * output).sum().backward()
        (wanted * wanted).sum().backward()
        for a, b in zip(ours, given):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-6)


def test_mistakes() -> None:
    with pytest.raises(ArgumentError, match="at least one"):
        rnn.pad_sequence([])
    with pytest.raises(ShapeError, match="first axis only"):
        rnn.pad_sequence([rl.zeros(2, 3), rl.zeros(2, 4)])
    padded = rl.zeros(4, 2, 3)
    with pytest.raises(ArgumentError, match="enforce_sorted"):
        rnn.pack_padded_sequence(padded, [1, 2])
    with pytest.raises(ArgumentError, match="1…4"):
        rnn.pack_padded_sequence(padded, [5, 2])
    with pytest.raises(ArgumentError, match="1…4"):
        rnn.pack_padded_sequence(padded, [2, 0])
    with pytest.raises(ShapeError, match="3 lengths"):
        rnn.pack_padded_sequence(padded, [2, 2, 1])
