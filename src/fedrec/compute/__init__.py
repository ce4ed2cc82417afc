"""Where arithmetic runs: compiled CPU code over threads, the choice of kernels, and the memory at hand."""
