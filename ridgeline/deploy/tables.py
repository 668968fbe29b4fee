"""The tables of a program file: 64-bit words, and the meaning of each word of a row.

Native code (`runtime_ir`) reads them, `assemble` writes them. A *case* is one way to run: a plan
with what its slots are bound to, at fixed sizes or, with registers, at sizes that a call gives. Of
a case that depends on sizes a run has a copy of its image, in which it sets some words.
"""

from __future__ import annotations

from enum import IntEnum

ABI_VERSION = 1
TABLE = "rlx.table"  # the symbol of the program's table
POOL = "rlx.pool"  # and that of the threads' state


class Table(IntEnum):
    """The program."""

    VERSION = 0
    INPUTS = 1  # rows of Given
    INPUT_COUNT = 2
    OUTPUTS = 3
    OUTPUT_COUNT = 4
    INSTRUCTION_SETS = 5  # rows of InstructionSet, the best first
    INSTRUCTION_SET_COUNT = 6
    STATE_BYTES = 7
    STATE = 8  # what it is at first
    WEIGHTS = 9
    WRITES = 10  # 1 where a run changes state
    MESSAGES = 11  # texts by status
    MESSAGE_COUNT = 12
    DESCRIPTION = 13
    STATE_OFFSETS = 14
    STATE_COUNT = 15
    WORDS = 16


class Given(IntEnum):
    """A pointer that a caller gives."""

    ALIGNMENT = 0
    STATUS = 1  # what a call returns where the pointer is null or not aligned
    WORDS = 2


class InstructionSet(IntEnum):
    """Code for one kind of processor: what that must have, as masks, and the cases."""

    FEATURES = 0  # eight words, as `instruction_sets` orders them
    NAME = 8
    CASES = 9
    CASE_COUNT = 10
    SETUP = 11  # a case that runs once, when the program is opened; or null
    HOISTED_BYTES = 12  # what it computes
    WORDS = 13


class Case(IntEnum):
    """A plan and what it runs over. Offsets are words of the image, which begins with bindings."""

    REGISTERS = 0  # how many; none where all sizes are fixed
    CODE = 1  # their expressions
    CHECKS = 2  # rows of a register and what it must be
    CHECK_COUNT = 3
    IMAGE = 4
    IMAGE_WORDS = 5
    PATCHES = 6  # rows of a word of the image and a register
    PATCH_COUNT = 7
    BINDINGS = 8  # how many
    COPIES = 9  # offset of rows (from slot, to slot, bytes)
    COPY_COUNT = 10
    COUNTERS = 11  # offset of rows (offset in the state, how much a run adds)
    COUNTER_COUNT = 12
    PLAN = 13  # offset
    FLAG = 14  # the slot of the flag that an index was out of range; or -1
    RUN_BYTES = 15  # memory for a run: arena first
    RUN_REGISTER = 16  # the register with that number where it depends on sizes; or -1
    SLOTS = 17  # those of the plan, and the further ones
    EXTRAS = 18  # offset of bindings of further slots, which copies use
    EXTRA_COUNT = 19
    WORDS = 20


class Base(IntEnum):
    """To what the value of a binding is added; of the first two an address is read there."""

    INPUTS = 0
    OUTPUTS = 1
    WEIGHTS = 2
    STATE = 3
    HOISTED = 4
    RUN = 5
    SIZES = 6
    COUNT = 7


class Status(IntEnum):
    """What calls return; numbers from FIRST_INPUT on are inputs, then outputs, that are wrong."""

    OK = 0
    NO_PROGRAM = 1
    PROCESSOR = 2
    MEMORY = 3
    INDEX = 4
    SIZES = 5
    FIRST_INPUT = 16


class Operation(IntEnum):
    """The expressions of registers, in postfix form: a word each, some with an operand."""

    END = 0  # of one expression: the next register's begins
    CONSTANT = 1
    SIZE = 2
    REGISTER = 3
    THREADS = 4
    ADD = 5
    MULTIPLY = 6
    FLOOR_DIVIDE = 7  # by zero: zero
    MODULO = 8
    MINIMUM = 9
    MAXIMUM = 10
    LESS = 11
    EQUAL = 12


STACK = 64  # the deepest expression
