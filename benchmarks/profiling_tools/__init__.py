"""Programs and a script for NVIDIA's own tools, whose output chapter 3 shows."""
