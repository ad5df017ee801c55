"""`qo cancel`: stop tasks that have not ended."""

from qo.cli.bulk import bulk_command

command = bulk_command("cancel", "Cancel tasks: waiting ones at once, running ones as soon as their handler notices.")
