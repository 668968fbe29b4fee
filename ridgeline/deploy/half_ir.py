"""Half precision for processors without instructions for it, as LLVM IR.

Code for x86-64-v2 calls two functions that are in a compiler's library and neither in libc nor in
libm; under these names a program file has them itself, with the bits that F16C's instructions give.
"""

from __future__ import annotations

HALF = """
define float @"__extendhfsf2"(half %x) {
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %sign.at = and i32 %bits, 32768
  %sign = shl i32 %sign.at, 16
  %size = and i32 %bits, 32767
  %moved = shl i32 %size, 13
  %normal = add i32 %moved, 939524096
  %special = add i32 %moved, 1879048192
  %quiet = or i32 %special, 4194304
  %count = uitofp i32 %size to float
  %tiny = fmul float %count, 0x3E70000000000000
  %small = bitcast float %tiny to i32
  %is.small = icmp ult i32 %size, 1024
  %is.special = icmp uge i32 %size, 31744
  %is.nan = icmp ugt i32 %size, 31744
  %finite = select i1 %is.small, i32 %small, i32 %normal
  %known = select i1 %is.special, i32 %special, i32 %finite
  %whole = select i1 %is.nan, i32 %quiet, i32 %known
  %signed = or i32 %whole, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}

define half @"__truncsfhf2"(float %x) {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %size = and i32 %bits, 2147483647
  %moved = lshr i32 %size, 13
  %odd = and i32 %moved, 1
  %half.way = add i32 %size, 4095
  %even = add i32 %half.way, %odd
  %based = sub i32 %even, 939524096
  %normal = lshr i32 %based, 13
  %positive = bitcast i32 %size to float
  %aligned = fadd float %positive, 5.0e-1
  %aligned.bits = bitcast float %aligned to i32
  %small = sub i32 %aligned.bits, 1056964608
  %payload = and i32 %moved, 1023
  %nan = or i32 %payload, 32256
  %is.small = icmp ult i32 %size, 947912704
  %is.large = icmp uge i32 %size, 1199566848
  %is.nan = icmp ugt i32 %size, 2139095040
  %finite = select i1 %is.small, i32 %small, i32 %normal
  %known = select i1 %is.large, i32 31744, i32 %finite
  %whole = select i1 %is.nan, i32 %nan, i32 %known
  %signed = or i32 %whole, %sign
  %short = trunc i32 %signed to i16
  %result = bitcast i16 %short to half
  ret half %result
}
"""
