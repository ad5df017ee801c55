"""What the pages show is true: code compiles and runs, commands exist, links resolve, every name is there."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.docs.pages import PAGES, ROOT, Block, blocks_of, matches, name_of, prose_of

import qo
from qo.cli.main import ALIASES, COMMANDS, Commands
from qo.cli.main import main as qo_command

AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
DRIVER = """
import ast, asyncio, inspect, sys
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {"__name__": "__main__"}
async def main():
    done = eval(code, names)
    if inspect.iscoroutine(done):
        await done
asyncio.run(main())
"""
pages = pytest.mark.parametrize("page", PAGES, ids=name_of)


def environment() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("QO_", "S3_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean | {"PATH": path, "COLUMNS": "140", "PYTHONWARNINGS": "error::ResourceWarning"}


@pages
def test_python_compiles(page: Path) -> None:
    """Every Python block is Python."""
    for block in blocks_of(page):
        if block.language == "python":
            compile(block.text, f"{page}:{block.line}", "exec", flags=AWAIT, dont_inherit=True)


def runnable(page: Path, language: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.mark == "run" and block.language == language]


def write_files(page: Path, folder: Path) -> None:
    for block in blocks_of(page):
        if block.mark.startswith("file: "):
            (folder / block.mark.removeprefix("file: ")).write_text(block.text)


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page, "python")], ids=name_of)
def test_python_runs(page: Path, tmp_path: Path) -> None:
    """The blocks marked `run` work as one program and print what their comments say."""
    write_files(page, tmp_path)
    program = "".join(block.text for block in runnable(page, "python"))
    (tmp_path / "page.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, "page.py"],
        cwd=tmp_path, env=environment() | {"PYTHONPATH": "."}, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = "\n".join(re.findall(r"^\s*print\(.*\)  # (.*)$", program, re.MULTILINE))
    assert matches(said, done.stdout), f"the page says:\n{said}\nit printed:\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page, "console")], ids=name_of)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    """Commands marked `run` print what the page shows; files are as they are at that place of the page."""
    variables: dict[str, str] = {}
    for block in blocks_of(page):
        if block.mark.startswith("file: "):
            (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text)
        if block.mark != "run" or block.language != "console":
            continue
        for command, expected in commands_with_output(block.text):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                variables[name] = value
                continue
            done = subprocess.run(
                command, shell=True, executable="/bin/bash", cwd=tmp_path, env=environment() | variables,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90,
            )  # fmt: skip
            assert matches(expected, done.stdout), (
                f"{page}:{block.line}: {command}\nthe page shows:\n{expected}\nit printed:\n{done.stdout}"
            )


def commands_with_output(text: str) -> list[tuple[str, str]]:
    """Each command and the lines that follow it. A comment after two spaces and # is for the reader."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((re.sub(r"\s{2,}#.*$", "", line[2:]), ""))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


def parts_of(line: str) -> list[list[str]]:
    """The commands of a shell line, without pipes and the like."""
    parts: list[list[str]] = [[]]
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    for word in lexer:
        if set(word) <= set("();<>|&"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def check_command(words: list[str], where: str) -> None:
    """`qo` takes these arguments; nothing is run."""
    try:
        with qo_command.make_context("qo", list(words), resilient_parsing=False) as ctx:
            assert isinstance(qo_command, Commands)
            rest = [*ctx._protected_args, *ctx.args]
            name, command, arguments = qo_command.resolve_command(ctx, rest)
            assert command is not None
            command.make_context(name, list(arguments), parent=ctx)
    except click.exceptions.Exit:
        pass  # --help
    except click.ClickException as error:
        raise AssertionError(f"{where}: qo {' '.join(words)}: {error.format_message()}") from error


@pages
def test_commands_of_blocks_exist(page: Path) -> None:
    """Every `qo …` line of a console block would be understood."""
    for block in blocks_of(page):
        if block.language != "console":
            continue
        for command, _ in commands_with_output(block.text):
            for part in parts_of(command):
                while part and "=" in part[0] and not part[0].startswith("-"):
                    part = part[1:]  # a variable
                if part and part[0] == "qo":
                    check_command(part[1:], f"{name_of(page)}:{block.line}")


@pages
def test_commands_in_the_text_exist(page: Path) -> None:
    """Every `qo …` in the running text is a command, and its options exist."""
    spans = re.findall(r"`qo ([a-z][a-z-]*)([^`]*)`", prose_of(page))
    spans += re.findall(r"/qo ([a-z][a-z-]*)(.*)$", page.read_text(), re.MULTILINE)
    for name, rest in spans:
        assert name in {*COMMANDS, *ALIASES}, f"{name_of(page)}: there is no command qo {name}"
        command = qo_command.get_command(click.Context(qo_command), name)  # type: ignore[attr-defined]
        assert command is not None
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest):
            assert option in known, f"{name_of(page)}: qo {name} has no option {option}"


@pages
def test_links_resolve(page: Path) -> None:
    """Every link to a file of the project, and to a heading in it, leads somewhere."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name_of(page)}: {target} leads nowhere"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{name_of(page)}: there is no heading #{anchor} in {path or 'it'}"


def test_every_page_is_in_the_index() -> None:
    """docs/README.md leads to every page; the notes of docs/design have an index of their own."""
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)\)", index.read_text())}
    wanted = {page for page in PAGES if page.parent.name != "design"} - {ROOT / "README.md", index}
    assert {name_of(page) for page in wanted - linked} == set()


def test_every_public_name_is_documented() -> None:
    """Each name of `qo.__all__` stands somewhere in the README or docs as code."""
    code = " ".join(
        " ".join(re.findall(r"`[^`]+`", prose_of(page))) + "".join(block.text for block in blocks_of(page))
        for page in PAGES
        if page.parent.name != "design"
    )
    missing = [name for name in qo.__all__ if not re.search(rf"\b{name}\b", code)]
    assert missing == []


def test_every_command_is_documented() -> None:
    """Each command of `qo` is used or named in the docs."""
    text = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in COMMANDS if f"qo {name}" not in text] == []
