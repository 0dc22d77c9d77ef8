"""A class: many submissions, judged in turn and resumed where they ended."""
