"""Modules read from ONNX files: they run, jit, train, and refuse what is damaged or hostile."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ridgeline as rl
from ridgeline.config import config
from ridgeline.onnx.values import OnnxError

onnxruntime.set_default_logger_severity(4)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    rl.manual_seed(0)
    with config.override(tier="interpreter"):
        yield


def value(name: str, shape: Sequence[Any] | None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], arrays: Any = None,
    functions: Sequence[Any] = (), opset: int = 18,
) -> onnx.ModelProto:  # fmt: skip
    held = [numpy_helper.from_array(array, name) for name, array in (arrays or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), held)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    made = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    made.ir_version = 8
    return made


def loaded(proto: onnx.ModelProto) -> Any:
    return rl.onnx.load(proto.SerializeToString())


def in_runtime(proto: onnx.ModelProto, *arrays: Any) -> list[Any]:
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=providers)
    feeds = {each.name: array for each, array in zip(session.get_inputs(), arrays)}
    return list(session.run(None, feeds))


def perceptron() -> onnx.ModelProto:
    draw = np.random.default_rng(0)
    arrays = {
        "w": draw.standard_normal((8, 4)).astype(np.float32),
        "b": draw.standard_normal(4).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    return model(nodes, [value("x", ["n", 8])], [value("y", ["n", 4])], arrays)


def test_deferred_eager_and_jitted_give_what_the_runtime_gives() -> None:
    proto = perceptron()
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    (expected,) = in_runtime(proto, x)
    module = loaded(proto)
    np.testing.assert_allclose(module(rl.tensor(x)).detach().numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(module(x=x).detach().numpy(), expected, rtol=1e-5)
    with rl.eager():
        np.testing.assert_allclose(module(rl.tensor(x)).detach().numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(rl.jit(module)(rl.tensor(x)).detach().numpy(), expected, rtol=1e-5)


def test_weights_are_parameters_and_train() -> None:
    module = loaded(perceptron())
    assert sorted(name for name, _ in module.named_parameters()) == ["b", "w"]
    x, goal = rl.randn(16, 8), rl.rand(16, 4)
    optimizer = rl.optim.SGD(module.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = rl.nn.functional.mse_loss(module(x), goal)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)


def test_gradients_are_those_of_the_formula() -> None:
    module = loaded(perceptron())
    x = rl.randn(3, 8, requires_grad=True)
    module(x).sum().backward()
    w = dict(module.named_parameters())["w"].detach().numpy()
    s = x.detach().numpy() @ w + dict(module.named_parameters())["b"].detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), (s > 0) @ w.T, rtol=1e-5, atol=1e-6)


def flattening() -> onnx.ModelProto:
    """Sizes by Shape, Gather, Mul and Concat, as exporters write them."""
    arrays = {"zero": np.array(0), "rest": np.array([-1]), "axis": np.array([0])}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
        helper.make_node("Add", ["rows", "rows"], ["twice"]),
        helper.make_node("Unsqueeze", ["twice", "axis"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
        helper.make_node("ConstantOfShape", ["wanted_too"], ["ones"],
                         value=helper.make_tensor("v", FLOAT, [1], [2.0])),
        helper.make_node("Mul", ["y", "ones"], ["z"]),
    ]  # fmt: skip
    nodes.insert(6, helper.make_node("Shape", ["y"], ["wanted_too"]))
    return model(nodes, [value("x", ["n", 4])], [value("z", None)], arrays)


def test_shapes_stay_sizes_under_jit_with_dynamic_axes() -> None:
    proto = flattening()
    module = loaded(proto)
    jitted = rl.jit(lambda x: module(x), dynamic=[("x", 0)])
    with config.override(tier="compiled"), warnings.catch_warnings():
        warnings.simplefilter("error")  # several traces for one reason are warned of
        for rows in (3, 5, 9, 6, 11):
            x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
            np.testing.assert_allclose(jitted(rl.tensor(x)).numpy(), in_runtime(proto, x)[0])


def branching() -> onnx.ModelProto:
    sides = []
    for op in ("Add", "Mul"):
        node = helper.make_node(op, ["x", "x"], [f"{op}_y"])
        sides.append(helper.make_graph([node], op, [], [value(f"{op}_y", [3])]))
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1]),
    ]
    arrays = {"zero": np.array(0, np.float32)}
    return model(nodes, [value("x", [3])], [value("y", [3])], arrays)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_is_chosen_by_data_in_every_way_to_run(sign: int) -> None:
    x = np.array([1, 2, 3], np.float32) * sign
    (expected,) = in_runtime(branching(), x)
    module = loaded(branching())
    np.testing.assert_array_equal(module(rl.tensor(x)).numpy(), expected)
    np.testing.assert_array_equal(rl.jit(module)(rl.tensor(x)).numpy(), expected)


def doubling() -> onnx.ModelProto:
    """x doubles while its sum is below 100."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["a", "a"], ["b"]),
            helper.make_node("ReduceSum", ["b"], ["s"], keepdims=0),
            helper.make_node("Less", ["s", "most"], ["again"]),
        ],
        "body", [value("i", [], INT64), value("c", [], BOOL), value("a", [3])],
        [value("again", [], BOOL), value("b", [3])],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["", "go", "x"], ["y"], body=body)]
    arrays = {"most": np.array(100, np.float32), "go": np.array(True)}
    return model(nodes, [value("x", [3])], [value("y", [3])], arrays)


def test_a_loop_turns_as_often_as_data_say() -> None:
    x = np.array([1, 2, 3], np.float32)
    (expected,) = in_runtime(doubling(), x)
    module = loaded(doubling())
    np.testing.assert_array_equal(module(rl.tensor(x)).numpy(), expected)
    np.testing.assert_array_equal(rl.jit(module)(rl.tensor(x)).numpy(), expected)


def identity(**changes: Any) -> onnx.ModelProto:
    settings: dict[str, Any] = {"inputs": [value("x", [2])], "outputs": [value("y", [2])]}
    return model([helper.make_node("Identity", ["x"], ["y"])], **(settings | changes))


def external(tmp_path: Path, location: str, length: int = 8) -> Path:
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", [2])],
        {"w": np.ones(2, np.float32)},
    )  # fmt: skip
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=text)
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    data = np.array([3, 4], np.float32).tobytes()
    (tmp_path / "outside.bin").write_bytes(data)
    (tmp_path / "inner" / "inside.bin").write_bytes(data)
    (tmp_path / "inner" / "link.bin").symlink_to(tmp_path / "outside.bin")
    return path


def test_external_data_are_read_from_the_folder(tmp_path: Path) -> None:
    module = rl.onnx.load(external(tmp_path, "inside.bin"))
    np.testing.assert_array_equal(module(rl.zeros(2)).detach().numpy(), [3, 4])


ELSEWHERE = ["../outside.bin", "/etc/passwd", "link.bin", "missing.bin", "", "x/../../outside.bin"]


@pytest.mark.parametrize("location", ELSEWHERE)
def test_external_data_elsewhere_are_refused(location: str, tmp_path: Path) -> None:
    with pytest.raises(OnnxError, match=r"outside|not there"):
        rl.onnx.load(external(tmp_path, location))


def test_external_data_have_as_many_bytes_as_the_shape_says(tmp_path: Path) -> None:
    with pytest.raises(OnnxError, match="8 bytes"):
        rl.onnx.load(external(tmp_path, "inside.bin", 1 << 40))


def huge() -> onnx.ModelProto:
    proto = identity()
    proto.graph.initializer.append(TensorProto(name="w", data_type=FLOAT, dims=[1 << 40, 1 << 40]))
    return proto


def short_of_data() -> onnx.ModelProto:
    proto = identity()
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[5], raw_data=b"abcd")
    proto.graph.initializer.append(tensor)
    return proto


def cyclic() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    return model(nodes, [value("x", [2])], [value("b", [2])])


def recursive() -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    node = helper.make_node("f", ["x"], ["y"], domain="own")
    function = helper.make_function("own", "f", ["x"], ["y"], [node], imports)
    return model(
        [node], [value("x", [2])], [value("y", [2])], functions=[function]
    )  # fmt: skip


def exploding() -> onnx.ModelProto:
    """Each function calls the next one twice."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = []
    for depth in range(40):
        inner = [
            helper.make_node(f"f{depth + 1}", ["x"], ["m"], domain="own"),
            helper.make_node(f"f{depth + 1}", ["m"], ["y"], domain="own"),
        ]
        functions.append(helper.make_function("own", f"f{depth}", ["x"], ["y"], inner, imports))
    last = [helper.make_node("Neg", ["x"], ["y"])]
    functions.append(helper.make_function("own", "f40", ["x"], ["y"], last, imports))
    node = helper.make_node("f0", ["x"], ["y"], domain="own")
    return model([node], [value("x", [2])], [value("y", [2])], functions=functions)


def unknown() -> onnx.ModelProto:
    nodes = [helper.make_node("Fly", ["x"], ["y"], domain="own")]
    return model(nodes, [value("x", [2])], [value("y", [2])])


def bare() -> onnx.ModelProto:
    return model([helper.make_node("Identity", ["x"], ["y"])], [value("x", [2])], [value("q", [2])])


HOSTILE = {
    "huge": (huge, "dimensions"), "short of data": (short_of_data, "damaged|elements"),
    "cyclic": (cyclic, "nothing before it gives"), "recursive": (recursive, "calls itself"),
    "exploding": (exploding, "steps|nested"), "unknown": (unknown, "not offered: own.Fly"),
    "no output": (bare, "nothing gives the output"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_get_one_line(name: str) -> None:
    make, text = HOSTILE[name]
    with pytest.raises(OnnxError, match=text) as raised:
        loaded(make())
    assert "\n" not in raised.value.message


def test_truncated_and_mutated_files_are_refused_or_run() -> None:
    whole = perceptron().SerializeToString()
    draw = np.random.default_rng(0)
    for number in range(150):
        content = bytearray(whole)
        if number % 3 == 0:
            content = content[: int(draw.integers(len(whole)))]
        else:
            for _ in range(1 + number % 4):
                content[int(draw.integers(len(whole)))] = int(draw.integers(256))
        with suppress(rl.RidgelineError):
            rl.onnx.load(bytes(content))(rl.ones(2, 8))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.onnx"):
        rl.onnx.load("nothing.onnx")


def test_inputs_are_checked_by_name() -> None:
    module = loaded(perceptron())
    with pytest.raises(OnnxError, match="no input 'z'"):
        module(z=rl.ones(1, 8))
    with pytest.raises(OnnxError, match="'x' is not given"):
        module()
    with pytest.raises(OnnxError, match="1 inputs"):
        module(rl.ones(1, 8), rl.ones(1, 8))
