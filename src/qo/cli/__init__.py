"""The `qo` command. `main` finds the commands, one module each; they call the client and print."""
