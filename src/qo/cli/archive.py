"""`qo archive`: put ended tasks away."""

from qo.cli.bulk import bulk_command

command = bulk_command("archive", "Put ended tasks away: they keep everything and leave the lists.")
