"""The thread pool as LLVM IR: its state and its workers, over what `support_ir` has of the system.

A region is open while its generation is odd. Workers *join late*: whoever finds it open enters by
raising the count in the low half of the state word; the caller works too, closes the region, and
waits only for those inside. So a worker that is asleep or descheduled never holds anybody up.

The tasks of a region are cut into equal ranges, one for each thread, and handed out in chunks: a
thread takes those of its own range in order, then what the others have left. So neighbouring
tasks, and the same tasks of one region after another, mostly run on one core, which has their data
at hand.

The state lies in one page that the kernel wipes in a forked child: there it reads as a pool that
has not started yet. The caller's side is `region_ir`: `enter` a plan, run a `region`. Only one
caller at a time has the workers. Another one, or one inside a region, runs its tasks itself rather
than wait.
"""

from __future__ import annotations

import mmap

from ridgeline.runtime.cpu.support_ir import system_ir

# Byte offsets in the state page; words that several threads write have a cache line each, but for
# the numbers of the ranges, which share lines: a thread that looks for work reads all of them.
STATE, REGION, LOCK, HOT, SLEEPERS, EPOCH, STARTED, FAILED, NEXT = range(0, 9 * 64, 64)
RANGES = 64  # the most there are; one number each, from NEXT on: the first task not yet taken
# What threads need to know of a region, from REGION on.
FUNCTION, ARGS, GRAIN, PARTS, SHARE, LARGER = range(REGION, REGION + 6 * 8, 8)
# The second page is kept over a fork.
LIMIT, CALLS, LOOK = range(mmap.PAGESIZE, mmap.PAGESIZE + 3 * 64, 64)
STATE_BYTES = 2 * mmap.PAGESIZE

SPIN_NS = 50_000  # an idle worker polls this long before it sleeps
HOT_SPIN_NS = 1_000_000  # and this long while some plan is running
GENERATION = 1 << 32  # the generation's unit; below it, the count of workers inside
SHORT_NS = 60_000  # waking sleepers for one call does not pay for less work than this
SHARED_NS = 25_000  # but sharing pays from here on, with workers that are awake
MEASURED_EVERY = 16  # calls, a power of two


def pool_ir(deployed: bool = False) -> str:
    """Workers and what starts and wakes them, to be put in one module with `region_ir`."""
    return "\n".join((system_ir(deployed), _WAKE, _BOUND, _WORK, _WORKER, _GROW))


_WAKE = f"""
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.smin.i32(i32, i32)

define void @ridgeline_pool_wake(ptr %pool, i32 %count) {{
  %epoch = getelementptr i8, ptr %pool, i64 {EPOCH}
  call void @atomic_notify(ptr %epoch, i32 %count)
  ret void
}}
"""

# Where range %r of a region begins: each has %share tasks, the first %larger one more.
_BOUND = """
define internal i64 @bound(i64 %r, i64 %share, i64 %larger) alwaysinline {
  %even = mul i64 %r, %share
  %extra = call i64 @llvm.smin.i64(i64 %r, i64 %larger)
  %bound = add i64 %even, %extra
  ret i64 %bound
}
"""

# Runs chunks until none is left, those of the thread's own range first; how many tasks it ran.
_WORK = f"""
define internal i64 @work(ptr %pool, i64 %rank) {{
entry:
  %function.at = getelementptr i8, ptr %pool, i64 {FUNCTION}
  %function = load ptr, ptr %function.at
  %args.at = getelementptr i8, ptr %pool, i64 {ARGS}
  %args = load ptr, ptr %args.at
  %grain.at = getelementptr i8, ptr %pool, i64 {GRAIN}
  %grain = load i64, ptr %grain.at
  %parts.at = getelementptr i8, ptr %pool, i64 {PARTS}
  %parts = load i64, ptr %parts.at
  %share.at = getelementptr i8, ptr %pool, i64 {SHARE}
  %share = load i64, ptr %share.at
  %larger.at = getelementptr i8, ptr %pool, i64 {LARGER}
  %larger = load i64, ptr %larger.at
  %own = urem i64 %rank, %parts
  br label %range
range:
  %visited = phi i64 [ 0, %entry ], [ %visited.more, %after ]
  %ran = phi i64 [ 0, %entry ], [ %tasks, %after ]
  %ahead = add i64 %own, %visited
  %around = sub i64 %ahead, %parts
  %past = icmp sge i64 %ahead, %parts
  %r = select i1 %past, i64 %around, i64 %ahead
  %next.offset = shl i64 %r, 3
  %next.base = getelementptr i8, ptr %pool, i64 {NEXT}
  %next = getelementptr i8, ptr %next.base, i64 %next.offset
  %r.more = add i64 %r, 1
  %last = call i64 @bound(i64 %r.more, i64 %share, i64 %larger)
  br label %look
look:
  %tasks = phi i64 [ %ran, %range ], [ %tasks.more, %run ]
  %seen = load atomic i64, ptr %next monotonic, align 8
  %some = icmp slt i64 %seen, %last
  br i1 %some, label %take, label %after
take:
  %begin = atomicrmw add ptr %next, i64 %grain monotonic
  %left = icmp slt i64 %begin, %last
  br i1 %left, label %run, label %after
run:
  %full = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %full, i64 %last)
  call void %function(ptr %args, i64 %begin, i64 %end)
  %length = sub i64 %end, %begin
  %tasks.more = add i64 %tasks, %length
  br label %look
after:
  %visited.more = add i64 %visited, 1
  %others = icmp slt i64 %visited.more, %parts
  br i1 %others, label %range, label %done
done:
  ret i64 %tasks
}}
"""


# A worker's life. Its argument is the pool's address with its index in the low bits.
# A worker beyond the present limit on threads ends, the highest index first, and tells the rest.
# Before it sleeps it announces itself and looks once more: the caller opens a region first and
# looks for sleepers second, so one of the two always notices the other.
_WORKER = f"""
define internal ptr @worker(ptr %argument) {{
entry:
  %packed = ptrtoint ptr %argument to i64
  %index = and i64 %packed, 4095
  %address = and i64 %packed, -4096
  %pool = inttoptr i64 %address to ptr
  %limit.at = getelementptr i8, ptr %pool, i64 {LIMIT}
  %hot = getelementptr i8, ptr %pool, i64 {HOT}
  %epoch = getelementptr i8, ptr %pool, i64 {EPOCH}
  %sleepers = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %started = getelementptr i8, ptr %pool, i64 {STARTED}
  %rank = add i64 %index, 1
  %rank32 = trunc i64 %rank to i32
  %index32 = trunc i64 %index to i32
  %born = call i64 @now()
  br label %look
look:
  %last = phi i64 [ 0, %entry ], [ %last, %enter ], [ %generation, %leave ], [ %last, %relax ],
    [ %last, %tick ], [ %last, %woken ]
  %since = phi i64 [ %born, %entry ], [ %since, %enter ], [ %left, %leave ], [ %since, %relax ],
    [ %since, %tick ], [ %woken.at, %woken ]
  %polls = phi i32 [ 0, %entry ], [ 0, %enter ], [ 0, %leave ], [ %polls.more, %relax ],
    [ 0, %tick ], [ 0, %woken ]
  %state = load atomic i64, ptr %pool acquire, align 8
  %generation = lshr i64 %state, 32
  %open.bit = and i64 %generation, 1
  %open = icmp ne i64 %open.bit, 0
  %new = icmp ne i64 %generation, %last
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %wanted = icmp slt i64 %rank, %limit
  %may = and i1 %open, %new
  %join = and i1 %may, %wanted
  br i1 %join, label %enter, label %idle
enter:
  %inside = add i64 %state, 1
  %exchange = cmpxchg ptr %pool, i64 %state, i64 %inside acquire monotonic
  %entered = extractvalue {{ i64, i1 }} %exchange, 1
  br i1 %entered, label %leave, label %look
leave:
  call i64 @work(ptr %pool, i64 %rank)
  atomicrmw sub ptr %pool, i64 1 release
  %left = call i64 @now()
  br label %look
idle:
  br i1 %wanted, label %relax, label %surplus
relax:
  call void @relax()
  %polls.more = add i32 %polls, 1
  %again = icmp slt i32 %polls.more, 16
  br i1 %again, label %look, label %tick
tick:
  %time = call i64 @now()
  %waited = sub i64 %time, %since
  %plans = load atomic i32, ptr %hot monotonic, align 4
  %running = icmp sgt i32 %plans, 0
  %patience = select i1 %running, i64 {HOT_SPIN_NS}, i64 {SPIN_NS}
  %patient = icmp slt i64 %waited, %patience
  br i1 %patient, label %look, label %sleep
surplus:
  %retired = cmpxchg ptr %started, i32 %rank32, i32 %index32 seq_cst monotonic
  %ends = extractvalue {{ i32, i1 }} %retired, 1
  br i1 %ends, label %end, label %sleep
end:
  call void @ridgeline_pool_wake(ptr %pool, i32 2147483647)
  ret ptr null
sleep:
  %ticket = load atomic i32, ptr %epoch seq_cst, align 4
  atomicrmw add ptr %sleepers, i32 1 seq_cst
  %state.now = load atomic i64, ptr %pool seq_cst, align 8
  %generation.now = lshr i64 %state.now, 32
  %same = icmp eq i64 %generation.now, %generation
  br i1 %same, label %wait, label %rise
wait:
  call void @atomic_wait(ptr %epoch, i32 %ticket, i64 -1)
  br label %rise
rise:
  %before = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %others = icmp sgt i32 %before, 1
  %plans.now = load atomic i32, ptr %hot monotonic, align 4
  %busy = icmp sgt i32 %plans.now, 0
  %spread = and i1 %others, %busy
  br i1 %spread, label %wake, label %woken
wake:
  call void @ridgeline_pool_wake(ptr %pool, i32 2)
  br label %woken
woken:
  %woken.at = call i64 @now()
  br label %look
}}
"""


# Start missing workers. If the system refuses one, the pool stays as large as it is.
_GROW = f"""
define internal void @grow(ptr %pool, i64 %limit) noinline {{
entry:
  %started = getelementptr i8, ptr %pool, i64 {STARTED}
  %failed = getelementptr i8, ptr %pool, i64 {FAILED}
  %address = ptrtoint ptr %pool to i64
  br label %next
next:
  %count = load atomic i32, ptr %started seq_cst, align 4
  %count64 = zext i32 %count to i64
  %rank = add i64 %count64, 1
  %missing = icmp slt i64 %rank, %limit
  br i1 %missing, label %claim, label %done
claim:
  %more = add i32 %count, 1
  %claimed = cmpxchg ptr %started, i32 %count, i32 %more seq_cst monotonic
  %ours = extractvalue {{ i32, i1 }} %claimed, 1
  br i1 %ours, label %create, label %next
create:
  %packed = or i64 %address, %count64
  %argument = inttoptr i64 %packed to ptr
  %ok = call i1 @spawn(ptr @worker, ptr %argument)
  br i1 %ok, label %next, label %fail
fail:
  atomicrmw sub ptr %started, i32 1 seq_cst
  store atomic i32 1, ptr %failed monotonic, align 4
  br label %done
done:
  ret void
}}
"""


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
  call void @yield_core()
  br label %drain
release:
  store atomic i32 0, ptr %lock release, align 4
  ret i64 %estimate
}}
"""
