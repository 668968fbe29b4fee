"""Module: registration, walking, modes, state and errors, as in torch."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import nn
from ridgeline.data.dataset import as_array
from ridgeline.dtypes import float64, int64
from ridgeline.nn.describe import count_parameters
from ridgeline.nn.state import StateDictError
from ridgeline.random import manual_seed
from ridgeline.record import mutation
from ridgeline.tensors.tensor import Tensor, tensor


class Block(nn.Module):
    """A layer, a child, a buffer and a plain attribute."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.scale = nn.Parameter(tensor(np.ones(width, np.float32)))
        self.register_buffer("count", tensor(np.zeros(1, np.float32)))
        self.register_buffer("cache", tensor(np.zeros(1, np.float32)), persistent=False)
        self.note = "plain"

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) * self.scale


def model() -> nn.Sequential:
    return nn.Sequential(Block(), nn.ReLU(), nn.ModuleDict({"head": nn.Linear(3, 2)})["head"])


def test_names_and_order_are_torchs() -> None:
    net = model()
    assert [name for name, _ in net.named_parameters()] == [
        "0.scale", "0.first.weight", "0.first.bias", "2.weight", "2.bias",
    ]  # fmt: skip
    assert [name for name, _ in net.named_modules()] == ["", "0", "0.first", "1", "2"]
    assert [name for name, _ in net.named_buffers()] == ["0.count", "0.cache"]
    assert [type(m).__name__ for m in net.children()] == ["Block", "ReLU", "Linear"]
    assert "0.cache" not in net.state_dict() and "0.count" in net.state_dict()


def test_shared_parameters_come_once() -> None:
    net = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_attributes_move_between_tables() -> None:
    block = Block()
    block.scale = None
    assert "scale" in dir(block) and block.scale is None
    with pytest.raises(TypeError, match="is a parameter"):
        block.scale = 3
    del block.scale
    block.scale = nn.Parameter(tensor([1.0]))
    block.first = nn.Identity()
    assert isinstance(block.first, nn.Identity)
    block.count = tensor([5.0])
    assert as_array(block.state_dict()["count"]).tolist() == [5.0]
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = block.missing
    with pytest.raises(KeyError, match="no dots"):
        block.register_buffer("a.b", tensor([1.0]))


def test_init_must_be_called_first() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        Late()


def test_every_change_moves_the_guard_epoch() -> None:
    block = Block()
    for change in (
        lambda: block.eval(),
        lambda: setattr(block, "first", nn.Linear(3, 3)),
        lambda: setattr(block, "note", "other"),
        lambda: block.register_forward_hook(lambda *a: None),
        lambda: delattr(block, "note"),
    ):
        before = mutation.epoch.value
        change()
        assert mutation.epoch.value > before


def test_modes_and_gradient_switches() -> None:
    net = model().eval()
    assert not any(m.training for m in net.modules())
    assert all(m.training for m in net.train().modules())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    with pytest.raises(ValueError, match="True or False"):
        net.train("yes")  # type: ignore[arg-type]


def test_to_changes_floating_values_only() -> None:
    block = Block()
    block.register_buffer("steps", tensor(3, dtype=int64))
    before = block.first.weight
    block.to(float64)
    assert block.first.weight is before and before.dtype is float64 and before.requires_grad
    assert block.steps.dtype is int64 and block.count.dtype is float64
    assert block.float().first.weight.dtype.name == "float32"


def test_hooks_see_and_replace() -> None:
    layer, seen = nn.Identity(), []
    pre = layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    post = layer.register_forward_hook(lambda m, args, out: seen.append(args) or out * 2)
    assert as_array(layer(tensor([1.0]))).tolist() == [4.0] and len(seen) == 1
    pre.remove()
    with post:
        assert as_array(layer(tensor([1.0]))).tolist() == [2.0]
    assert as_array(layer(tensor([1.0]))).tolist() == [1.0]


def test_apply_goes_children_first_and_in_order() -> None:
    order: list[str] = []
    model().apply(lambda m: order.append(type(m).__name__))
    assert order == ["Linear", "Block", "ReLU", "Linear", "Sequential"]


def test_paths() -> None:
    net = model()
    assert net.get_submodule("0.first") is net[0].first
    assert net.get_parameter("2.weight") is net[2].weight
    assert net.get_buffer("0.count") is net[0].count
    with pytest.raises(AttributeError, match="no submodule 'nope'"):
        net.get_submodule("0.nope")


def test_repr_of_what_did_not_match_is_torchs() -> None:
    net = nn.Linear(2, 1)
    assert repr(net.load_state_dict(net.state_dict())) == "<All keys matched successfully>"
    text = repr(net.load_state_dict({"weight": net.weight, "more": 1}, strict=False))
    assert text == "IncompatibleKeys(missing_keys=['bias'], unexpected_keys=['more'])"


def test_a_module_with_children_prints_its_own_arguments_on_a_line() -> None:
    made = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 3))
    ours = [line.split("  #")[0] for line in repr(made).splitlines()]
    assert ours == repr(theirs).splitlines()


def test_repr_shows_counts_and_folds_repeats() -> None:
    net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(3)], nn.ReLU())
    lines = repr(net).splitlines()
    assert lines[0] == "Sequential(  # 18 parameters"
    assert lines[1] == (
        "  (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)  # 6 parameters"
    )
    assert lines[2:] == ["  (3): ReLU()", ")"]


def test_state_round_trip_and_copies() -> None:
    one, two = model(), model()
    assert two.load_state_dict(one.state_dict()) == ([], [])
    x = tensor(np.ones((2, 3), np.float32))
    want = as_array(one(x))
    assert np.array_equal(want, as_array(two(x)))
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert np.array_equal(want, as_array(other(x)))
        assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in other.parameters())
    two[2].weight.data.zero_()
    assert not np.array_equal(as_array(one[2].weight), as_array(two[2].weight))


def test_state_errors_name_every_fault_and_change_nothing() -> None:
    net = model()
    before = {k: as_array(v) for k, v in net.state_dict().items()}
    wrong = {k: v + 1 for k, v in net.state_dict().items()}
    wrong["2.wieght"] = wrong.pop("2.weight")
    wrong["0.first.bias"] = tensor([1.0, 2.0])
    with pytest.raises(StateDictError) as caught:
        net.load_state_dict(wrong)
    text = str(caught.value)
    assert "missing: 2.weight" in text and "unexpected: 2.wieght" in text
    assert "0.first.bias: the module has [3], the state [2]" in text
    assert "2.weight may be called 2.wieght" in text
    for name, value in net.state_dict().items():
        assert np.array_equal(as_array(value), before[name])


def test_partial_state_with_strict_false() -> None:
    net = model()
    result = net.load_state_dict({"2.bias": np.ones(2, np.float32), "x": 1}, strict=False)
    assert "2.weight" in result.missing_keys and result.unexpected_keys == ["x"]
    assert as_array(net[2].bias).tolist() == [1.0, 1.0]


def test_assign_puts_tensors_in_place() -> None:
    net, value = nn.Linear(2, 2, bias=False), tensor(np.eye(2))
    net.load_state_dict({"weight": value}, assign=True)
    assert net.weight.dtype is float64 and isinstance(net.weight, nn.Parameter)


def test_containers() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net.append(nn.Linear(2, 1)).insert(0, nn.Identity())
    assert len(net) == 4 and isinstance(net[0], nn.Identity) and isinstance(net[-1], nn.Linear)
    del net[0]
    assert [type(m).__name__ for m in net[1:]] == ["ReLU", "Linear"]
    net[1] = nn.Tanh()
    assert isinstance(net[1], nn.Tanh)
    named = nn.Sequential({"a": nn.Linear(2, 2), "b": nn.ReLU()})
    assert list(named.state_dict()) == ["a.weight", "a.bias"]
    bag = nn.ModuleDict({"x": nn.ReLU()})
    bag["y"] = nn.Linear(1, 1)
    assert "y" in bag and list(bag.keys()) == ["x", "y"] and len(bag) == 2
    held = nn.ParameterList([tensor([1.0])]).append(tensor([2.0]))
    assert list(held.state_dict()) == ["0", "1"] and isinstance(held[1], nn.Parameter)
    table = nn.ParameterDict({"w": tensor([1.0])})
    assert list(table.state_dict()) == ["w"] and "w" in table
    table.update({"b": tensor([2.0])})
    assert list(table.keys()) == ["w", "b"] and sum(v.item() for v in table.values()) == 3
    assert table.get("none") is None and table.pop("b").item() == 2 and list(table) == ["w"]


def test_deferred_modules_take_no_memory_until_read() -> None:
    with nn.deferred():
        huge = nn.Linear(1_000_000, 1_000_000)
    assert count_parameters(huge) == 1_000_001_000_000
    manual_seed(3)
    with nn.deferred():
        late = nn.Linear(3, 4)
    after = nn.Linear(2, 2)
    manual_seed(3)
    for module in (late, after):  # the same draws, in the same order, as without
        twin = nn.Linear(module.in_features, module.out_features)
        assert np.array_equal(as_array(module.weight), as_array(twin.weight))


def test_a_module_is_replaced_at_its_path() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    model.set_submodule("0.0", nn.Identity())
    assert isinstance(model[0][0], nn.Identity)
    with pytest.raises(AttributeError, match="no submodule"):
        model.set_submodule("0.7", nn.Identity())


def test_an_assigned_buffer_is_registered_and_saved_unless_it_is_transient() -> None:
    layer = nn.Module()
    layer.steps = nn.Buffer(tensor([0.0]))
    layer.cache = nn.Buffer(tensor([1.0]), persistent=False)
    assert list(layer.state_dict()) == ["steps"]
    assert [name for name, _ in layer.named_buffers()] == ["steps", "cache"]
    assert isinstance(layer.cache, nn.Buffer) and not list(layer.parameters())


def test_paths_have_the_names_of_lists_and_of_modules_that_only_hold_others() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.ModuleDict({"up": nn.Linear(2, 3)})])
            self.layers.append(nn.Linear(3, 4))
            self.parts = nn.Module()
            self.parts.last = nn.Linear(5, 1)

        def forward(self, x: rl.Tensor) -> rl.Tensor:
            return self.parts.last(self.layers[1](self.layers[0]["up"](x)))

    net = Net()
    with pytest.raises(rl.RidgelineError, match=r"in module layers\.0\.up"):
        net(rl.ones(2, 9))
    with pytest.raises(rl.RidgelineError, match=r"in module parts\.last"):
        net(rl.ones(2, 2))
    net.layers[1] = nn.Linear(8, 5)
    with pytest.raises(rl.RidgelineError, match=r"in module layers\.1"):
        net(rl.ones(2, 2))
