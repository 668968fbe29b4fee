"""The planted programs and the rule that must find each."""

RULE_OF = {
    "no_workers": "D2",
    "slow_decode": "D1",
    "pageable_copies": "D3",
    "small_copies": "D5",
    "exposed_copies": "D4",
    "filled_on_host": "D6",
    "item_per_step": "S1",
    "device_syncs": "S2",
    "allocator_churn": "S3",
    "tiny_kernels": "L2",
    "per_tensor_optimizer": "L7",
    "select_loop": "L8",
    "recompilation": "L9",
    "blocking_checkpoint": "L6",
    "memory_growth": "M3",
    "no_tf32": "C2",
    "no_amp": "C1",
    "odd_sizes": "C3",
    "stray_double": "C4",
    "channels_first": "C5",
    "bias_before_norm": "C6",
    "unfused_attention": "C7",
    "pointwise_chain": "C8",
    "small_grid": "K4",
}
ON_CPU = (
    "no_workers",
    "slow_decode",
    "select_loop",
    "recompilation",
    "memory_growth",
    "unfused_attention",
)
CASES = [(name, "cuda") for name in RULE_OF] + [(name, "cpu") for name in ON_CPU]
