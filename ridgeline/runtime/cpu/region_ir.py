"""The caller's side of the thread pool as LLVM IR: `enter` a plan, run a `region`.

Only one caller at a time has the workers. Another one, or one inside a region, runs its tasks
itself rather than wait.
"""

from __future__ import annotations

from ridgeline.runtime.cpu.pool_ir import (
    ARGS,
    FAILED,
    FUNCTION,
    GENERATION,
    GRAIN,
    HOT,
    LARGER,
    LIMIT,
    LOCK,
    NEXT,
    PARTS,
    RANGES,
    SHARE,
    SLEEPERS,
    STARTED,
)

SHORT_NS = 60_000  # waking sleepers for one call does not pay for less work than this
SHARED_NS = 25_000  # but sharing pays from here on, with workers that are awake
MEASURED_EVERY = 16  # calls, a power of two


def region_ir() -> str:
    """What the executor calls, to be put in one module with `pool_ir`."""
    return _ENTER + _REGION


# Before a plan's steps: whether to use the pool (2), and whether to measure the work (1).
# When everybody sleeps and the plan's parallel steps are known to be short, they run inline, and
# are measured again now and then: what loops and branches take is not always the same. Where they
# are worth sharing, sleepers are woken at those calls: if calls follow close upon each other, they
# stay awake for the next ones.
# Otherwise sleepers are woken now, while the first steps run; each one wakes two more.
_ENTER = f"""
define internal i32 @enter(ptr %pool, i64 %estimate, i64 %call) {{
entry:
  %limit.at = getelementptr i8, ptr %pool, i64 {LIMIT}
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %alone = icmp slt i64 %limit, 2
  br i1 %alone, label %inline, label %look
inline:
  ret i32 0
look:
  %sleepers.at = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %started.at = getelementptr i8, ptr %pool, i64 {STARTED}
  %started = load atomic i32, ptr %started.at monotonic, align 4
  %cold = icmp sge i32 %sleepers, %started
  %known = icmp ne i64 %estimate, 0
  %brief = icmp slt i64 %estimate, {SHORT_NS}
  %short = and i1 %known, %brief
  %skip = and i1 %cold, %short
  br i1 %skip, label %cheap, label %heat
cheap:
  %since = and i64 %call, {MEASURED_EVERY - 1}
  %due = icmp eq i64 %since, 0
  %worth = icmp sge i64 %estimate, {SHARED_NS}
  %try = and i1 %due, %worth
  br i1 %try, label %heat, label %stay
stay:
  %sometimes = zext i1 %due to i32
  ret i32 %sometimes
heat:
  %hot = getelementptr i8, ptr %pool, i64 {HOT}
  atomicrmw add ptr %hot, i32 1 seq_cst
  %any = icmp sgt i32 %sleepers, 0
  br i1 %any, label %wake, label %ready
wake:
  %few = call i32 @llvm.smin.i32(i32 %sleepers, i32 4)
  call void @ridgeline_pool_wake(ptr %pool, i32 %few)
  br label %ready
ready:
  %unknown = icmp eq i64 %estimate, 0
  %measure = or i1 %unknown, %any
  %mode = select i1 %measure, i32 3, i32 2
  ret i32 %mode
}}
"""


# One parallel loop. With %measure, the nanoseconds it would have taken one thread, else 0.
_REGION = f"""
define internal i64 @region(ptr %pool, ptr %function, ptr %args, i64 %tasks, i64 %grain,
                            i1 %measure) {{
entry:
  %lock = getelementptr i8, ptr %pool, i64 {LOCK}
  %sleepers.at = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %exchange = cmpxchg ptr %lock, i32 0, i32 1 acquire monotonic
  %ours = extractvalue {{ i32, i1 }} %exchange, 1
  br i1 %ours, label %locked, label %inline
inline:
  call void %function(ptr %args, i64 0, i64 %tasks)
  ret i64 0
locked:
  %limit.at = getelementptr i8, ptr %pool, i64 {LIMIT}
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %started.at = getelementptr i8, ptr %pool, i64 {STARTED}
  %started = load atomic i32, ptr %started.at monotonic, align 4
  %started64 = zext i32 %started to i64
  %rank = add i64 %started64, 1
  %missing = icmp slt i64 %rank, %limit
  %failed.at = getelementptr i8, ptr %pool, i64 {FAILED}
  %failed = load atomic i32, ptr %failed.at monotonic, align 4
  %able = icmp eq i32 %failed, 0
  %short = and i1 %missing, %able
  br i1 %short, label %start, label %open
start:
  call void @grow(ptr %pool, i64 %limit)
  br label %open
open:
  %rounded = add i64 %tasks, %grain
  %rounded.less = sub i64 %rounded, 1
  %chunks = sdiv i64 %rounded.less, %grain
  %most = call i64 @llvm.smin.i64(i64 %limit, i64 {RANGES})
  %parts = call i64 @llvm.smin.i64(i64 %chunks, i64 %most)
  %share = sdiv i64 %tasks, %parts
  %larger = srem i64 %tasks, %parts
  %function.at = getelementptr i8, ptr %pool, i64 {FUNCTION}
  store ptr %function, ptr %function.at
  %args.at = getelementptr i8, ptr %pool, i64 {ARGS}
  store ptr %args, ptr %args.at
  %grain.at = getelementptr i8, ptr %pool, i64 {GRAIN}
  store i64 %grain, ptr %grain.at
  %parts.at = getelementptr i8, ptr %pool, i64 {PARTS}
  store i64 %parts, ptr %parts.at
  %share.at = getelementptr i8, ptr %pool, i64 {SHARE}
  store i64 %share, ptr %share.at
  %larger.at = getelementptr i8, ptr %pool, i64 {LARGER}
  store i64 %larger, ptr %larger.at
  br label %cut
cut:
  %r = phi i64 [ 0, %open ], [ %r.more, %cut ]
  %first = call i64 @bound(i64 %r, i64 %share, i64 %larger)
  %next.offset = shl i64 %r, 3
  %next.base = getelementptr i8, ptr %pool, i64 {NEXT}
  %next = getelementptr i8, ptr %next.base, i64 %next.offset
  store atomic i64 %first, ptr %next monotonic, align 8
  %r.more = add i64 %r, 1
  %uncut = icmp slt i64 %r.more, %parts
  br i1 %uncut, label %cut, label %publish
publish:
  atomicrmw add ptr %pool, i64 {GENERATION} seq_cst
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %any = icmp sgt i32 %sleepers, 0
  br i1 %any, label %wake, label %begin
wake:
  %few = call i32 @llvm.smin.i32(i32 %sleepers, i32 4)
  call void @ridgeline_pool_wake(ptr %pool, i32 %few)
  br label %begin
begin:
  br i1 %measure, label %timed, label %untimed
untimed:
  call i64 @work(ptr %pool, i64 0)
  br label %close
timed:
  %before = call i64 @now()
  %own = call i64 @work(ptr %pool, i64 0)
  %after = call i64 @now()
  %time = sub i64 %after, %before
  %none = icmp eq i64 %own, 0
  %counted = select i1 %none, i64 1, i64 %own
  %scaled = mul i64 %time, %tasks
  %alone = sdiv i64 %scaled, %counted
  br label %close
close:
  %estimate = phi i64 [ 0, %untimed ], [ %alone, %timed ]
  atomicrmw add ptr %pool, i64 {GENERATION} acq_rel
  br label %drain
drain:
  %polls = phi i32 [ 0, %close ], [ %polls.more, %wait ], [ %polls, %yield ]
  %state = load atomic i64, ptr %pool acquire, align 8
  %count = trunc i64 %state to i32
  %empty = icmp eq i32 %count, 0
  br i1 %empty, label %release, label %busy
busy:
  %patient = icmp slt i32 %polls, 2000
  br i1 %patient, label %wait, label %yield
wait:
  call void @relax()
  %polls.more = add i32 %polls, 1
  br label %drain
yield:
  call i32 @sched_yield()
  br label %drain
release:
  store atomic i32 0, ptr %lock release, align 4
  ret i64 %estimate
}}
"""
