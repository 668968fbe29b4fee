"""Files that `save` writes compute in ONNX Runtime what the function computes here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ridgeline as rl
from ridgeline import models, nn
from ridgeline.config import config
from ridgeline.nn import functional as F
from ridgeline.onnx.writing.emitter import OnnxExportError
from ridgeline.tensors.pytree import flatten

onnxruntime.set_default_logger_severity(4)


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    rl.manual_seed(0)
    with config.override(tier="interpreter"):
        yield


def runs_alike(
    tmp_path: Path, function: Callable[..., Any], *args: Any, dynamic: Any = None, opset: int = 18,
    others: Any = (),
) -> onnx.ModelProto:  # fmt: skip
    path = rl.onnx.save(function, tmp_path / "f.onnx", *args, dynamic=dynamic, opset=opset)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for given in (args, *others):
        with rl.no_grad():
            expected: list[Any] = []
            flatten(function(*given), expected)
        feeds = {i.name: x.numpy() for i, x in zip(session.get_inputs(), given)}
        found = session.run(None, feeds)
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-3, atol=1e-5)
    return onnx.load(path)


def words(*shape: int) -> Any:
    return rl.randint(0, 50, shape)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "lenet5": (models.lenet5, lambda: rl.randn(2, 1, 32, 32)),
    "mlp": (lambda: models.mlp([12, 8, 4]), lambda: rl.randn(3, 12)),
    "resnet": (
        lambda: models.ResNet(
            depths=(1, 1), embedding_size=8, hidden_sizes=(16, 32), layer_type="bottleneck"
        ),
        lambda: rl.randn(1, 3, 32, 32),
    ),
    "gpt2": (
        lambda: models.GPT2(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=4),
        lambda: words(2, 8),
    ),
    "llama": (
        lambda: models.Llama(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        ),
        lambda: words(2, 8),
    ),
    "bert": (
        lambda: models.BERT(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=32,
        ),
        lambda: words(2, 8),
    ),
    "vit": (
        lambda: models.ViT(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            image_size=16, patch_size=4,
        ),
        lambda: rl.randn(1, 3, 16, 16),
    ),
    "unet": (lambda: models.UNet(3, 2, (4, 8)), lambda: rl.randn(1, 3, 16, 16)),
    "vgg": (
        lambda: models.VGG((1, 2), 5, batch_norm=True, widths=(4, 6), hidden=8),
        lambda: rl.randn(2, 3, 16, 16),
    ),
    "lstm": (lambda: models.LSTMLanguageModel(50, 8, 12, 2), lambda: words(2, 6)),
    "autoencoder": (lambda: models.DenoisingAutoencoder((12, 8, 4)), lambda: rl.randn(3, 12)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, tmp_path: Path) -> None:
    make, example = MODELS[name]
    runs_alike(tmp_path, make().eval(), example())


rl.manual_seed(0)
LAYERS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "grouped": (nn.Conv2d(4, 8, 3, 2, 1, groups=2), (2, 4, 9, 9)),
    "dilated": (nn.Conv1d(4, 8, 3, dilation=2), (2, 4, 9)),
    "volume": (nn.Conv3d(2, 3, 2), (1, 2, 4, 5, 6)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), (2, 3, 5, 5)),
    "max_pool": (nn.MaxPool2d(3, 2, 1), (2, 3, 9, 9)),
    "avg_pool": (nn.AvgPool2d(2), (2, 3, 8, 8)),
    "batch_norm": (nn.BatchNorm2d(3), (2, 3, 4, 4)),
    "group_norm": (nn.GroupNorm(2, 4), (2, 4, 5)),
    "rms_norm": (nn.RMSNorm(8), (2, 8)),
    "gru": (nn.GRU(4, 5, bidirectional=True), (6, 2, 4)),
    "encoder": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
    "gelu": (F.gelu, (3, 4)),
    "silu": (F.silu, (3, 4)),
    "softplus": (F.softplus, (3, 4)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (3, 4)),
    "sort": (lambda x: rl.sort(x, -1), (3, 4)),
    "top": (lambda x: rl.topk(x, 2), (3, 4)),
    "cumsum": (lambda x: rl.cumsum(x, 1), (3, 4)),
    "cumprod": (lambda x: rl.cumprod(x, 1), (3, 4)),
    "same": (lambda x: (x, x + 1, x), (3, 4)),
    "det": (rl.det, (3, 3)),
    "argmax": (lambda x: rl.argmax(x, 1), (3, 4)),
    "flip": (lambda x: rl.flip(x, (1,))[:, ::2], (3, 5)),
    "std": (lambda x: x.std(0), (3, 5)),
    "expm1": (lambda x: rl.expm1(x) + rl.log1p(x.abs()), (3, 5)),
    "resize": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 2, 4, 4)),
    "padded": (lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), (2, 3)),
    "scan": (lambda x: rl.scan(lambda c, a: (c + a, c * a), rl.zeros(2), x), (5, 2)),
    "cond": (lambda x: rl.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1), (3,)),
    "while": (
        lambda x: rl.while_loop(lambda c: c[0].sum() < 9, lambda c: (c[0] * 2,), (x.abs(),)), (3,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_functions(name: str, tmp_path: Path) -> None:
    function, shape = LAYERS[name]
    runs_alike(tmp_path, function.eval() if isinstance(function, nn.Module) else function,
               rl.randn(*shape))  # fmt: skip


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_axes_that_are_named_have_any_length(opset: int, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).eval()
    others = [(rl.randn(7, 8),), (rl.randn(2, 8),)]
    axes = {"input": {0: "batch"}}
    made = runs_alike(tmp_path, model, rl.randn(3, 8), dynamic=axes, opset=opset, others=others)
    assert made.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert made.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert made.opset_import[0].version == opset


def test_sizes_are_computed_from_the_shapes_of_inputs(tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        rows = x.shape[0]
        return x.reshape(rows * 2, -1).mean(1), x @ y, rl.arange(rows) * rows

    axes = {"x": {0: "rows"}}
    others = [(rl.randn(7, 4), rl.randn(4, 3))]
    runs_alike(tmp_path, f, rl.randn(5, 4), rl.randn(4, 3), dynamic=axes, others=others)


def test_weights_have_their_names(tmp_path: Path) -> None:
    made = runs_alike(tmp_path, nn.Linear(3, 2).eval(), rl.randn(2, 3))
    assert {"weight", "bias"} <= {each.name for each in made.graph.initializer}


def test_what_has_no_form_is_said_with_its_line_and_no_file_is_left(tmp_path: Path) -> None:
    with pytest.raises(OnnxExportError, match="lgamma has no form in ONNX") as raised:
        rl.onnx.save(rl.lgamma, tmp_path / "f.onnx", rl.ones(3))
    assert "test_save.py" in str(raised.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="opset 7 is not written"):
        rl.onnx.save(rl.exp, tmp_path / "f.onnx", rl.ones(3), opset=7)


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OnnxExportError, match="complex numbers have no form"):
        rl.onnx.save(lambda x: x.cdouble(), tmp_path / "f.onnx", rl.ones(2))
    assert not (tmp_path / "f.onnx").exists()


def test_what_was_loaded_can_be_saved(tmp_path: Path) -> None:
    path = rl.onnx.save(models.lenet5().eval(), tmp_path / "a.onnx", x := rl.randn(2, 1, 32, 32))
    loaded = rl.onnx.load(path).eval()
    runs_alike(tmp_path, loaded, x)


def test_inputs_of_a_loaded_model_keep_their_names(tmp_path: Path) -> None:
    axes = {"image": {0: "batch"}}

    def scaled(image: Any, scale: Any) -> Any:
        return image * scale

    x, y = rl.randn(4, 3), rl.randn(3)
    path = rl.onnx.save(scaled, tmp_path / "a.onnx", x, y, dynamic=axes)
    loaded = rl.onnx.load(path)
    assert loaded.input_names == ["image", "scale"]
    made = runs_alike(tmp_path, loaded, x, y, dynamic=axes, others=[(rl.randn(6, 3), y)])
    assert [each.name for each in made.graph.input] == ["image", "scale"]


def test_axes_of_several_inputs_with_one_name_are_one_size(tmp_path: Path) -> None:
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    others = [(rl.randn(6, 3), rl.randn(6, 3))]
    runs_alike(tmp_path, lambda x, y: (x + y) @ x.T, rl.randn(4, 3), rl.randn(4, 3),
               dynamic=axes, others=others)  # fmt: skip


def test_an_axis_that_has_one_length_only_is_not_written_as_any(tmp_path: Path) -> None:
    flat = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 6, 3)).eval()
    axes = {"input": {2: "height", 3: "width"}}
    with pytest.raises(OnnxExportError, match=r"one length only: .*height"):
        rl.onnx.save(flat, tmp_path / "f.onnx", rl.randn(2, 1, 8, 8), dynamic=axes)
    assert not list(tmp_path.iterdir())
    others = [(rl.randn(1, 1, 9, 12),)]
    pooled = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).eval()
    runs_alike(tmp_path, pooled, rl.randn(2, 1, 8, 8), dynamic={"input": {0: "n", **axes["input"]}},
               others=others)  # fmt: skip
