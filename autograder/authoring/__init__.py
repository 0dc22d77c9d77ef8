"""From marked solutions and chapters in Markdown to what a learner opens."""
