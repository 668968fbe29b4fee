"""Memory budgets: kernels run again close to their readers, so that fewer results are kept."""
