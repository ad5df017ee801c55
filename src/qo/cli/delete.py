"""`qo delete`: remove ended tasks."""

from qo.cli.bulk import bulk_command

command = bulk_command("delete", "Remove ended tasks with their history.")
