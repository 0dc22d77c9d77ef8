"""The far side of the grader: the only processes in which a learner's code runs.

Nothing here knows an exercise, a reference or a seed. The supervisor sends source
text and tensors, and gets bytes back.
"""
