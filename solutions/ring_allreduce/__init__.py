"""The ring all-reduce, from one step to many chunks."""
