"""A grade as table, page and Gradescope's file."""
