"""`qo unarchive`: bring archived tasks back."""

from qo.cli.bulk import bulk_command

command = bulk_command("unarchive", "Bring archived tasks back to the state they had.")
