"""The thread pool as LLVM IR: workers, regions, sleep and wake, over pthreads and futex.

A region is open while its generation is odd. Workers *join late*: whoever finds it open enters by
raising the count in the low half of the state word; the caller works too, closes the region, and
waits only for those inside. So a worker that is asleep or descheduled never holds anybody up.
Tasks are handed out in chunks by a shared counter.

The state lies in one page that the kernel wipes in a forked child: there it reads as a pool that
has not started yet. `region` and `enter` are what the executor calls.
"""

from __future__ import annotations

import mmap
import platform

# Byte offsets in the state page; each word that several threads write has a cache line to itself.
STATE, NEXT, REGION, LOCK, HOT, SLEEPERS, EPOCH, STARTED, FAILED = range(0, 9 * 64, 64)
# The second page is kept over a fork.
LIMIT, CALLS = mmap.PAGESIZE, mmap.PAGESIZE + 64
STATE_BYTES = 2 * mmap.PAGESIZE

SPIN_NS = 50_000  # an idle worker polls this long before it sleeps
HOT_SPIN_NS = 1_000_000  # and this long while some plan is running
SHORT_NS = 60_000  # waking sleepers does not pay for less work than this
GENERATION = 1 << 32  # the generation's unit; below it, the count of workers inside

_FUTEX = {"x86_64": 202, "aarch64": 98}
_RELAX = {  # tells the core that this is a polling loop: an intrinsic and its argument
    "x86_64": ("llvm.x86.sse2.pause", "", ""),
    "aarch64": ("llvm.aarch64.hint", "i32", "1"),
}


def pool_ir() -> str:
    """The pool's functions, to be put in one module with those that call them."""
    machine = platform.machine()
    if machine not in _FUTEX:
        raise NotImplementedError(f"the native thread pool has no {machine} form yet")
    relax, kind, argument = _RELAX[machine]
    return f"""
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.smin.i32(i32, i32)
declare void @{relax}({kind})

define internal void @relax() alwaysinline {{
  call void @{relax}({kind} {argument})
  ret void
}}

define internal i64 @now() {{
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest = getelementptr i8, ptr %time, i64 8
  %nanoseconds = load i64, ptr %rest
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}}

define void @ridgeline_pool_wake(ptr %pool, i32 %count) noinline {{
  %epoch = getelementptr i8, ptr %pool, i64 {EPOCH}
  atomicrmw add ptr %epoch, i32 1 seq_cst
  call i64 (i64, ...) @syscall(i64 {_FUTEX[machine]}, ptr %epoch, i32 129, i32 %count)
  ret void
}}
{_WORK}
{_worker(machine)}
{_GROW}
{_ENTER}
{_REGION}
"""


# Runs chunks until none is left; the number of chunks this thread ran.
_WORK = f"""
define internal i64 @work(ptr %pool) {{
entry:
  %next = getelementptr i8, ptr %pool, i64 {NEXT}
  %function.at = getelementptr i8, ptr %pool, i64 {REGION}
  %function = load ptr, ptr %function.at
  %args.at = getelementptr i8, ptr %pool, i64 {REGION + 8}
  %args = load ptr, ptr %args.at
  %tasks.at = getelementptr i8, ptr %pool, i64 {REGION + 16}
  %tasks = load i64, ptr %tasks.at
  %grain.at = getelementptr i8, ptr %pool, i64 {REGION + 24}
  %grain = load i64, ptr %grain.at
  br label %take
take:
  %chunks = phi i64 [ 0, %entry ], [ %chunks.more, %run ]
  %begin = atomicrmw add ptr %next, i64 %grain monotonic
  %left = icmp slt i64 %begin, %tasks
  br i1 %left, label %run, label %done
run:
  %full = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %full, i64 %tasks)
  call void %function(ptr %args, i64 %begin, i64 %end)
  %chunks.more = add i64 %chunks, 1
  br label %take
done:
  ret i64 %chunks
}}
"""


def _worker(machine: str) -> str:
    """A worker's life. Its argument is the pool's address with its index in the low bits.

    A worker beyond the present limit on threads ends, the highest index first, and tells the rest.
    Before it sleeps it announces itself and looks once more: the caller opens a region first and
    looks for sleepers second, so one of the two always notices the other.
    """
    return f"""
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
  call i64 @work(ptr %pool)
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
  call i64 (i64, ...) @syscall(i64 {_FUTEX[machine]}, ptr %epoch, i32 128, i32 %ticket, ptr null)
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


# Start missing workers, with all signals blocked so that Python's handlers stay on its threads.
_GROW = f"""
define internal void @grow(ptr %pool, i64 %limit) noinline {{
entry:
  %mask = alloca [128 x i8]
  %old = alloca [128 x i8]
  %thread = alloca i64
  %started = getelementptr i8, ptr %pool, i64 {STARTED}
  %failed = getelementptr i8, ptr %pool, i64 {FAILED}
  %address = ptrtoint ptr %pool to i64
  store [128 x i8] [{", ".join(["i8 -1"] * 128)}], ptr %mask
  call i32 @pthread_sigmask(i32 2, ptr %mask, ptr %old)
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
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %argument)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %detach, label %fail
detach:
  %id = load i64, ptr %thread
  call i32 @pthread_detach(i64 %id)
  br label %next
fail:
  atomicrmw sub ptr %started, i32 1 seq_cst
  store atomic i32 1, ptr %failed monotonic, align 4
  br label %done
done:
  call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret void
}}
"""


# Before a plan's steps: whether to use the pool (2), and whether to measure the work (1).
# When everybody sleeps and the plan's parallel steps are known to be short, they run inline.
# Otherwise sleepers are woken now, while the first steps run; each one wakes two more.
_ENTER = f"""
define internal i32 @enter(ptr %pool, i64 %estimate) {{
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
  ret i32 1
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
  %function.at = getelementptr i8, ptr %pool, i64 {REGION}
  store ptr %function, ptr %function.at
  %args.at = getelementptr i8, ptr %pool, i64 {REGION + 8}
  store ptr %args, ptr %args.at
  %tasks.at = getelementptr i8, ptr %pool, i64 {REGION + 16}
  store i64 %tasks, ptr %tasks.at
  %grain.at = getelementptr i8, ptr %pool, i64 {REGION + 24}
  store i64 %grain, ptr %grain.at
  %next = getelementptr i8, ptr %pool, i64 {NEXT}
  store atomic i64 0, ptr %next monotonic, align 8
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
  call i64 @work(ptr %pool)
  br label %close
timed:
  %before = call i64 @now()
  %own = call i64 @work(ptr %pool)
  %after = call i64 @now()
  %time = sub i64 %after, %before
  %rounded = add i64 %tasks, %grain
  %rounded.less = sub i64 %rounded, 1
  %chunks = sdiv i64 %rounded.less, %grain
  %none = icmp eq i64 %own, 0
  %share = select i1 %none, i64 1, i64 %own
  %scaled = mul i64 %time, %chunks
  %alone = sdiv i64 %scaled, %share
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
