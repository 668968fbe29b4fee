"""Memory budgets: kernels that run again where their results are due, so that less is kept."""
