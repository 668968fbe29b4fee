"""Default schedules for GPUs, one file per kernel family."""
