"""`python -m qo`: the same as the command `qo`."""

from qo.cli.main import main

if __name__ == "__main__":
    main(prog_name="qo")
