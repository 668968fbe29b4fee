"""Default schedules: analytic rules per kernel family, good without any search.

`default.steps(lowered, machine)` picks the family; each family is one file. A rule reads the
strides of the kernel's accesses and a few facts of the machine, and gives schedule steps.
"""
