"""`qo replay`, also called `qo retry`: run tasks again."""

from qo.cli.bulk import bulk_command

command = bulk_command(
    "replay",
    "Run tasks again: failed and cancelled ones anew, waiting ones at once. `qo retry` is the same.",
    force="Run completed tasks again too.",
)
