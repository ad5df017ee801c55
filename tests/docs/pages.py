"""Reads the pages of the documentation as tests need them.

A comment before a fenced block says what is done with it; it is not seen on the rendered page:

    <!-- run -->            Python: all such blocks of a page are one program, `await` allowed at its top level, run in
                            an empty directory; `print(…)  # text` says what is printed. Console: the commands are run
                            in order and the lines between them are what they print; … stands for anything.
    <!-- file: tasks.py --> The block is written to that file of the directory.

Blocks without a comment are compiled, or, if they are console blocks, their `qo` commands are parsed.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"(?:^<!-- (run|file: [\w./-]+) -->\n+)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    mark: str
    line: int


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(match[2], match[3], match[1] or "", text[: match.start(3)].count("\n")) for match in _BLOCK.finditer(text)
    ]


def prose_of(page: Path) -> str:
    """The page without its blocks."""
    return _BLOCK.sub("", page.read_text())


def matches(expected: str, printed: str) -> bool:
    """Line by line; … and the space around it stand for anything, alone on a line for any number of lines."""
    parts: list[str] = []
    for line in expected.strip().splitlines():
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            fixed = (re.escape(part) for part in re.split(r"\s*…\s*", line.rstrip()))
            parts.append(".*?".join(fixed) + r"\s*?\n")
    cleaned = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return re.fullmatch("".join(parts), cleaned) is not None
