"""What Hopper has beyond earlier GPUs, as device functions of one instruction each.

Copies of tiles that one thread starts and the copy engine makes (`rl_fetch`), barriers in shared
memory that count threads and bytes (`rl_barrier_…`), products of tiles in shared memory that four
warps start together (`rl_multiply`), and registers that warps leave to others. Nothing else in a
kernel is assembly, so a machine that has these functions runs the rest of its text as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.dtypes import DType

SWIZZLE = 128  # bytes of a row of a tile, whose 16-byte pieces are exchanged within 8 rows
ATOM = 8 * SWIZZLE  # bytes after which the exchange is the same again: tiles begin there
STEP = 32  # bytes along the depth that one instruction multiplies

INSTRUCTIONS = r"""
struct alignas(64) TensorMap { unsigned long long words[16]; };
DEVICE unsigned int rl_shared(const void *memory) {
  return (unsigned int)__cvta_generic_to_shared(memory);
}
DEVICE void rl_barrier_init(unsigned int at, unsigned int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(count) : "memory");
}
// Barriers are there for the copy engine and for the other blocks of the cluster.
DEVICE void rl_barriers_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void rl_barrier_expect(unsigned int at, unsigned int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(at), "r"(bytes) : "memory");
}
DEVICE void rl_barrier_arrive(unsigned int at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");
}
DEVICE void rl_barrier_arrive_at(unsigned int at, unsigned int block) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" :: "r"(at), "r"(block)
               : "memory");
}
DEVICE void rl_barrier_wait(unsigned int at, unsigned int parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra THROUGH;\nbra AGAIN;\nTHROUGH:\n}" :: "r"(at), "r"(parity) : "memory");
}
DEVICE void rl_prefetch_map(const TensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}
DEVICE void rl_multiply_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void rl_multiply_issued() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void rl_multiply_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}
template <int COUNT> DEVICE void rl_registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT));
}
template <int COUNT> DEVICE void rl_registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT));
}
DEVICE unsigned int rl_cluster_rank() {
  unsigned int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
DEVICE void rl_cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// A value that is computed where this stands, and nowhere else.
DEVICE void rl_kept(unsigned int &x) { asm volatile("" : "+r"(x)); }
DEVICE void rl_shared_store(unsigned int at, unsigned int value) {
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(at), "r"(value) : "memory");
}
DEVICE unsigned int rl_shared_load(unsigned int at) {
  unsigned int value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(at) : "memory");
  return value;
}
// What other blocks wrote meanwhile: not what a cache of this one holds.
DEVICE float4 rl_fresh(const float4 *from) {
  float4 x;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(from) : "memory");
  return x;
}
// Threads of a part of a block, `count` of them, meet.
DEVICE void rl_part_sync(int part, int count) {
  asm volatile("bar.sync %0, %1;" :: "r"(part), "r"(count) : "memory");
}
"""

# A matrix in shared memory, for products: where it begins, how far its pieces are apart.
DESCRIPTOR = r"""
DEVICE unsigned long long rl_matrix(unsigned int at, unsigned int leading, unsigned int stride) {
  return (unsigned long long)(at >> 4 & 0x3fff) | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}
"""


def fetch(rank: int, shared: bool) -> str:
    """The copy of a tile of a tensor with so many axes, to all blocks that have bits if `shared`.

    Each block that gets it is told by its own barrier.
    """
    axes = [f"x{n}" for n in range(rank)]
    first = 4 if shared else 3
    coordinates = ", ".join(f"%{first + n}" for n in range(rank))
    inputs = ['"r"(to)', '"l"(map)', '"r"(barrier)', *['"h"(blocks)'] * shared]
    inputs += [f'"r"({axis})' for axis in axes]
    blocks, cast, more = "", "", ""
    if shared:
        blocks, cast, more = "unsigned short blocks, ", ".multicast::cluster", ", %3"
    parameters = ", ".join(f"int {axis}" for axis in axes)
    return f"""
DEVICE void rl_fetch{"_for" * shared}({blocks}unsigned int to, const TensorMap *map,
                     unsigned int barrier, {parameters}) {{
  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
               "{cast} [%0], [%1, {{{coordinates}}}], [%2]{more};"
               :: {", ".join(inputs)} : "memory");
}}
"""


@dataclass(frozen=True, slots=True)
class Multiply:
    """A product of 64 rows by `columns`, 32 bytes deep, joined into registers.

    An operand that is turned has its rows or columns side by side in memory, not its depth.
    """

    columns: int
    dtype: DType
    left_turned: bool
    right_turned: bool

    @property
    def kind(self) -> str:
        """The type as the instruction names it."""
        return _KINDS[self.dtype.name][0]

    @property
    def total(self) -> str:
        """The type of the sums in C++."""
        return _KINDS[self.dtype.name][1]

    @property
    def depth(self) -> int:
        """Elements along the depth."""
        return STEP // self.dtype.itemsize

    def text(self) -> str:
        """Device functions: one overwrites what the registers held, one adds to it."""
        count = self.columns // 2
        letter = "r" if self.total == "int" else "f"
        return f"""{self._function("_first", "=", 0)}{self._function("", "+", 1)}
// The sums are looked at after the wait before this, not earlier.
DEVICE void rl_settled({self.total} (&sums)[{count}]) {{
#pragma unroll
  for (int n = 0; n < {count}; ++n) asm volatile("" : "+{letter}"(sums[n]) :: "memory");
}}
"""

    def _function(self, name: str, written: str, adds: int) -> str:
        count = self.columns // 2
        total, letter = ("s32", "r") if self.total == "int" else ("f32", "f")
        kinds = f"{total}.{self.kind}.{self.kind}"
        sums = ", ".join(f"%{n}" for n in range(count))
        signs = ", 1, 1" if total == "f32" else ""
        turned = f", {int(self.left_turned)}, {int(self.right_turned)}"
        turned = turned if self.dtype.itemsize == 2 else ""
        outputs = ", ".join(f'"{written}{letter}"(sums[{n}])' for n in range(count))
        return f"""
DEVICE void rl_multiply{name}({self.total} (&sums)[{count}], unsigned long long left,
                        unsigned long long right) {{
  asm volatile("{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, {adds}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{self.columns}k{self.depth}.{kinds} "
               "{{{sums}}}, %{count}, %{count + 1}, adds{signs}{turned};\\n}}"
               : {outputs} : "l"(left), "l"(right));
}}
"""


_KINDS = {
    "bfloat16": ("bf16", "float"),
    "float16": ("f16", "float"),
    "float32": ("tf32", "float"),
    "float8_e4m3fn": ("e4m3", "float"),
    "float8_e5m2": ("e5m2", "float"),
    "int8": ("s8", "int"),
    "uint8": ("u8", "int"),
}
