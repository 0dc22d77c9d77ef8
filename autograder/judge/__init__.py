"""The gates in their order, and what each rests on: values, traces, counts, speed."""
