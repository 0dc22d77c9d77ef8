"""What was handed in: notebooks and cells, and the slips that people make."""
