"""Modelled FLOPs and bytes of ops, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from ridgeline.profile.model.costs import cost_of
from ridgeline.profile.model.kernels import (
    changes_layout,
    is_library,
    short_name,
    uses_tensor_cores,
)
from ridgeline.profile.trace.model import OpArguments

BF16 = "c10::BFloat16"


def cost(name, dims, types, concrete=()):
    return cost_of(name, OpArguments(tuple(dims), tuple(types), (), tuple(concrete)))


def test_products():
    found = cost("aten::mm", [(64, 32), (32, 16)], [BF16, BF16])
    assert (found.flops, found.bytes) == (2 * 64 * 32 * 16, 2 * (64 * 32 + 32 * 16 + 64 * 16))
    found = cost("aten::addmm", [(16,), (64, 32), (32, 16)], ["float"] * 3)
    assert (found.flops, found.family) == (2 * 64 * 32 * 16, "matmul")
    found = cost("aten::bmm", [(4, 8, 2), (4, 2, 6)], ["float", "float"])
    assert found.flops == 2 * 4 * 8 * 2 * 6
    assert cost("aten::mm", [(64, 32), (31, 16)], [BF16, BF16]) is None


def test_convolutions():
    """A 3×3 kernel with stride 2 and padding 1 on 32×32 gives 16×16."""
    dims = [(8, 3, 32, 32), (64, 3, 3, 3), ()]
    options = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    found = cost("aten::convolution", dims, ["float", "float", ""], options)
    assert found.flops == 2 * (8 * 64 * 16 * 16) * (3 * 3 * 3)
    cudnn = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"]
    assert cost("aten::cudnn_convolution", dims, ["float", "float", ""], cudnn).flops == found.flops
    back = [(8, 64, 16, 16), (8, 3, 32, 32), (64, 3, 3, 3)]
    assert cost("aten::convolution_backward", back, ["float"] * 3).flops == 2 * found.flops


def test_attention_is_a_lower_bound():
    """A causal mask may halve the work, so half of 4·B·H·S²·D is the model."""
    dims = [(2, 4, 128, 64)] * 3
    found = cost("aten::_cudnn_attention_forward", dims, [BF16] * 3)
    assert found.flops == 2 * 2 * 4 * 128 * 128 * 64
    assert found.bytes == 2 * 2 * 4 * 64 * (128 + 128) * 2
    flash = [(2, 128, 4, 64)] * 3
    assert cost("aten::_flash_attention_forward", flash, [BF16] * 3).flops == found.flops
    back = cost("aten::_cudnn_attention_backward", [dims[0]] * 4, [BF16] * 4)
    assert back.flops == 2.5 * found.flops


def test_normalisation_and_pointwise():
    found = cost("aten::native_layer_norm", [(16, 256), (), (256,)], [BF16, "", BF16])
    assert found.bytes == 2 * 2 * 16 * 256 and found.family == "normalisation"
    found = cost("aten::add", [(16, 256), (256,)], ["float", "float"])
    assert found.bytes == 4 * (16 * 256 + 256 + 16 * 256)
    assert cost("aten::fill_", [(1024,), ()], ["float", "Scalar"]).bytes == 4096
    assert cost("aten::copy_", [(1024,), (1024,)], [BF16, "float"]).bytes == 1024 * 6


def test_unknown_ops_and_missing_shapes_have_no_cost():
    assert cost("aten::sort", [(4,)], ["float"]) is None
    assert cost("aten::mm", [], []) is None
    assert cost("aten::add", [()], ["Scalar"]) is None


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", True),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma", False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(...)", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>()", True),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nn", True),
        ("ampere_sgemm_128x64_nn", False),
        ("volta_sgemm_128x64_nn", False),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", True),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize", True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", True),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >",
            False,
        ),
    ],
)
def test_tensor_cores_by_name(name, tensor):
    assert uses_tensor_cores(name) == tensor


def test_other_names():
    assert changes_layout("void cudnn::engines_precompiled::nchwToNhwcKernel<float>(...)")
    assert is_library("nvjet_sm90_tst") and not is_library("triton_poi_fused_add_0")
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<x>, y>()"
    assert short_name(long) == "vectorized_elementwise_kernel[CUDAFunctor_add]"
    assert short_name("triton_poi_fused_add_mul_0") == "triton_poi_fused_add_mul_0"
