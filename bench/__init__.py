"""Measurements of qo. Timings are never tests; each is a ratio within one run, with the command that repeats it."""
