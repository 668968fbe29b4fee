"""GPU benchmarks: the workloads of the CPU's at GPU size, in one process and one run."""
