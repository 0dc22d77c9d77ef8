"""The golden set: kernels whose truth was read once off an H200's own counters."""
