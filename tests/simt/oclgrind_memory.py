"""Oclgrind's kernels on bounds, uninitialised memory, values and its own old bugs."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    blockDim,
    blockIdx,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    dynamic,
    f32,
    i32,
    i64,
    inout,
    local,
    out,
    shared,
    threadIdx,
    u32,
    u64,
)
from tests.simt.labelled import numbers, zeros
from tests.simt.oclgrind import said

TABLE = simt.constant(np.array([7, 42, 0, -1], np.int32))


@simt.device
def by_value(value):
    kept = value
    value = u32(777)
    return kept + value - value


@said("bugs/byval_function_argument", None, 1, 1, y=[42, 42])
def byval_function_argument(y: out[u32["2"]]):
    u = u32(42)
    y[0] = by_value(u)
    y[1] = u


@simt.device
def pair():
    return 3, i64(0)


@said("bugs/const_gep_expr_pointee_type", None, 1, 1)
def const_gep_expr_pointee_type():
    pair()


@said("bugs/false_warning_vector_argument", None, 1, 1, zeros(16), res=[1, 1, 2, 2, 3, 3, 4, 4])
def false_warning_vector_argument(arg: i32["16"], res: out[i32["8"]]):
    total = local(16, i32)
    for k in range(16):
        total[k] = arg[k] + k // 2 + 1
    for k in range(8):
        res[k] = total[k]


@said("bugs/gvn_arbitrary_integers", None, 1, 1, np.array([42], np.int32), dest=[0, 0, 42])
def gvn_arbitrary_integers(source: i32["n"], dest: out[i32["3"]]):
    x, y, z = 0, 0, source[threadIdx.x]
    dest[0], dest[1], dest[2] = x, y, z


@said("bugs/kernel_struct_argument", None, 1, 1, 42.0, 3.0, 18.0, y=[144])
def kernel_struct_argument(a: f32, b: f32, c: f32, y: out[f32["1"]]):
    y[0] = a * b + c


@said("bugs/llvm_bswap", None, 1, 1,
      np.array([0x00000001, 0x10000000, 0x12345678, 0x12233445], np.uint32),
      y=[0x01000000, 0x00000010, 0x78563412, 0x45342312])  # fmt: skip
def llvm_bswap(x: u32["n"], y: out[u32["n"]]):
    for i in range(4):
        w = x[i]
        low = (w & u32(0xFF)) << 24 | (w & u32(0xFF00)) << 8
        y[i] = low | (w & u32(0xFF0000)) >> 8 | (w & u32(0xFF000000)) >> 24


@simt.device
def same_three(a, b, c):
    return a, b, c


@said("bugs/llvm_memcpyopt_bug", None, 1, 1, y=[7, 7, 7])
def llvm_memcpyopt_bug(y: out[i32["3"]]):
    y[0], y[1], y[2] = same_three(7, 7, 7)


@simt.device
def one_more(x):
    x[0] += 1


@simt.device
def one():
    x = local(1, i32, fill=0)
    one_more(x)
    return x[0]


@said("bugs/many_alloca", None, 1, 1, 500, y=[500])
def many_alloca(n: i32, y: out[i32["1"]]):
    x = 0
    for _ in range(n):
        x += one()
    y[threadIdx.x] = x


@said("bugs/multidim_array_in_struct", None, 1, 1, y=[6])
def multidim_array_in_struct(y: out[u64["1"]]):
    b = local((2, 3, 1), u64, fill=1)
    c = u64(0)
    for i, j, k in simt.unroll(2, 3, 1):
        c += b[i, j, k]
    y[0] = c


@simt.device
def unused(p):
    return u64(1)


@said("bugs/null_argument", None, 1, 1, y=[1])
def null_argument(y: out[u64["1"]]):
    y[0] = unused(None)


@said("bugs/rhadd_overflow", None, 1, 1, y=[1 << 63])
def rhadd_overflow(y: out[u64["1"]]):
    a, b = u64(0), u64(0xFFFFFFFFFFFFFFFF)
    y[0] = (a >> 1) + (b >> 1) + ((a | b) & u64(1))


@said("bugs/sroa_addrspace_cast", None, 1, 1, np.array([42.25], np.float32), y=[42.25])
def sroa_addrspace_cast(x: f32["n"], y: out[f32["n"]]):
    s = x[threadIdx.x]
    y[threadIdx.x] = s


@said("bugs/write_vector_write_only_fp", None, 4, 1, np.full((4, 4), 7, np.int32),
      y=[[42, 7, 7, 7]] * 4)  # fmt: skip
def write_vector_write_only_fp(y: inout[i32["n 4"]]):
    y[blockIdx.x, 0] = 42


@said("memcheck/async_copy_out_of_bounds", "out of bounds", 1, 4, numbers(4), zeros(4))
def async_copy_out_of_bounds(source: i32["n"], y: inout[i32["n"]]):
    scratch = shared(4, i32)
    t = threadIdx.x
    cp_async(scratch[t + 1], source[t])
    cp_async_commit()
    cp_async_wait(0)
    y[t] = t


@said("memcheck/atomic_out_of_bounds", "out of bounds", 5, 1, zeros(4), counters=[1, 1, 1, 1])
def atomic_out_of_bounds(counters: inout[i32["n"]]):
    atomic_add(counters, blockIdx.x, 1)


@said("memcheck/casted_static_array", "out of bounds", 1, 1)
def casted_static_array(y: out[u64["1"]]):
    g = local((5, 7, 2), i32, fill=0)
    g[0, 0, 0] = 0xD54E
    crc = u64(0)
    for i in range(9):
        crc += u64(g[i, 0, 0])
    y[0] = crc


@said("memcheck/dereference_null", "out of bounds", 1, 1, zeros(0), zeros(1))
def dereference_null(x: i32["n"], y: inout[i32["1"]]):
    y[0] *= x[0]


@said("memcheck/fake_out_of_bounds", None, 1, 1, 0, y=[2])
def fake_out_of_bounds(i: i32, y: out[u64["1"]]):
    g = local(4, u64)
    for k in range(4):
        g[k] = u64(k + 2)
    y[0] = g[i]


@said("memcheck/read_out_of_bounds", "out of bounds", 1, 5, numbers(4), numbers(4), sizes={"m": 5})
def read_out_of_bounds(a: i32["n"], b: i32["n"], c: out[i32["m"]]):
    i = threadIdx.x
    c[i] = a[i] + b[i] if i < 4 else a[0] * (a[i] + b[i])


@said("memcheck/read_write_only_memory", "uninitialised", 1, 4, numbers(4))
def read_write_only_memory(x: i32["n"], y: out[i32["n"]]):
    y[threadIdx.x] += x[threadIdx.x]


@said("memcheck/static_array", "out of bounds", 1, 4)
def static_array(y: out[i32["4"]]):
    b = local(2, i32, fill=7)
    i = threadIdx.x
    b[i] = i
    y[i] = b[i]


@said("memcheck/static_array_padded_struct", "out of bounds", 1, 4)
def static_array_padded_struct(y: out[i32["4"]]):
    b = local(2, i32, fill=42)
    y[threadIdx.x] = b[threadIdx.x]


@said("memcheck/write_out_of_bounds", "out of bounds", 1, 5, numbers(5), numbers(5),
      sizes={"m": 4}, c=[0, 2, 4, 6])  # fmt: skip
def write_out_of_bounds(a: i32["n"], b: i32["n"], c: out[i32["m"]]):
    c[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x]


@said("misc/array", None, 8, 1, y=[[k] * 16 for k in range(8)])
def array(y: out[i64["8 16"]]):
    data = local((12, 16), i64)
    for k, x in simt.unroll(12, 16):
        data[k, x] = i64(k)
    for x in range(16):
        y[blockIdx.x, x] = data[blockIdx.x, x]


@said("misc/global_variables", None, 1, 1, np.array([7, 42], np.int32), y=[7, 42, 7, 42])
def global_variables(g: i32["2"], y: out[i32["4"]]):
    y[0], y[1] = g[0], g[1]
    y[2], y[3] = TABLE[0], TABLE[1]


@said("misc/lvalue_loads", None, 1, 1, np.arange(16, 20, dtype=np.float32),
      np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32),
      y=[[1, 3, 42, 4], [19, 18, 17, 16]])  # fmt: skip
def lvalue_loads(x: f32["4"], y: inout[f32["2 4"]]):
    y[0, 1] = y[0, 2]
    y[0, 2] = 42.0
    a, b, c, d = simt.load4(x, 0)
    simt.store4(y[1, 0], d, c, b, a)


@said("misc/printf", None, 1, 1, 7, 42.0)
def printf(i: i32, f: f32):
    print("int =", i)
    print("float =", f)


@said("misc/program_scope_constant_array", None, 4, 1, y=[7, 42, 0, -1])
def program_scope_constant_array(y: out[i32["4"]]):
    y[blockIdx.x] = TABLE[blockIdx.x]


@said("misc/switch_case", None, 8, 1, np.array([2, 3, 2, 0, 1, 5, -1, 4], np.int32),
      y=[2, 4, 4, -7, 4, 42, 42, 11])  # fmt: skip
def switch_case(x: i32["n"], y: out[i32["n"]]):
    i = blockIdx.x
    found = x[i]
    if found == 0:
        result = -7
    elif found == 1:
        result = i
    elif found == 2 or found == 3 or found == 4:
        result = found + i
    else:
        result = 42
    y[i] = result


@said("misc/vecadd", None, 64, 16, np.arange(1024, dtype=np.float32),
      np.arange(1024, dtype=np.float32), c=[float(2 * k) for k in range(1024)])  # fmt: skip
def vecadd(a: f32["n"], b: f32["n"], c: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    c[i] = a[i] + b[i]


@said("misc/vector_argument", "same-value race", 4, 1, 7, 42, 0, -1, y=[49, 84, 42, 41])
def vector_argument(a: i32, b: i32, c: i32, d: i32, y: out[i32["4"]]):
    y[0], y[1], y[2], y[3] = a + 42, b + 42, c + 42, d + 42


@said("uninitialized/partially_uninitialized_fract", "uninitialised", 1, 1)
def partially_uninitialized_fract(y: out[f32["8"]]):
    f = local(4, f32)
    f[0], f[2], f[3] = 4.2, 4.2, 4.2
    for k in range(4):
        y[k] = simt.floor(f[k])
        y[k + 4] = f[k] - simt.floor(f[k])


@said("uninitialized/private_array_initializer_list", None, 1, 1, y=[7, 42, -1, 0])
def private_array_initializer_list(y: out[f32["4"]]):
    scratch = local(4, f32)
    scratch[0], scratch[1], scratch[2], scratch[3] = 7.0, 42.0, -1.0, 0.0
    for k in range(4):
        y[k] = scratch[k]


@said("uninitialized/uninitialized_global_buffer", "uninitialised", 1, 1)
def uninitialized_global_buffer(x: out[f32["1"]], y: out[f32["1"]]):
    y[0] = x[0]
    x[0] = 0.0


@said("uninitialized/uninitialized_address", "uninitialised", 1, 1)
def uninitialized_address(y: out[i32["1"]]):
    a, i = local(3, i32, fill=1), local(2, i32)
    a[i[0]] = 4
    y[0] = a[i[1]]


@said("uninitialized/uninitialized_local_array", "uninitialised", 1, 16)
def uninitialized_local_array(y: out[f32["16"]]):
    scratch = shared(16, f32)
    i = threadIdx.x
    if i != 8:
        scratch[i] = f32(i)
    y[i] = scratch[i]


@said("uninitialized/uninitialized_local_ptr", "uninitialised", 1, 16, shared=64)
def uninitialized_local_ptr(y: out[f32["16"]]):
    scratch = shared(dynamic, f32)
    i = threadIdx.x
    if i != blockDim.x // 2:
        scratch[i] = f32(i)
    y[i] = scratch[i]


@said("uninitialized/uninitialized_local_variable", "uninitialised", 1, 1, zeros(1))
def uninitialized_local_variable(y: inout[i32["1"]]):
    x = shared(1, i32)
    if y[0] > 0:
        x[0] = y[0]
    y[0] = x[0]


@said("uninitialized/uninitialized_private_array", "uninitialised", 1, 1,
      np.array([0, 1, 1, 3], np.int32))  # fmt: skip
def uninitialized_private_array(indices: i32["4"], y: out[f32["4"]]):
    scratch = local(4, f32)
    for i in range(4):
        scratch[indices[i]] = f32(i)
    for i in range(4):
        y[i] = scratch[i]
