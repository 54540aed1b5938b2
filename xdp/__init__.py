"""The pre-filter: dropping unwanted packets in the kernel. Knows nothing of HTTP."""
