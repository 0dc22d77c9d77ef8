"""What a notebook's reader calls, and what it shows."""
