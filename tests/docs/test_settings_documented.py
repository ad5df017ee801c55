"""docs/reference/settings.md says what the code does."""

import re
from pathlib import Path

from qo.cli.config import show
from qo.settings import LEVEL_PRESETS, OTHER_ENVIRONMENT, PRECEDENCE, ROWS, Settings

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()


def test_every_setting_is_documented_with_its_default() -> None:
    """The table of the page has each setting, its variable and its default, in order, and nothing that is gone."""
    documented = re.findall(r"^\| `(\w+)` \| `(QO_\w+)` \| `([^`]+)` \| .", PAGE, re.MULTILINE)
    defaults = Settings()
    assert documented == [(name, row.environment, show(name, getattr(defaults, name))) for name, row in ROWS.items()]


def test_no_unknown_variable_is_documented() -> None:
    """Every QO_ name on the page exists."""
    known = {row.environment for row in ROWS.values()} | OTHER_ENVIRONMENT
    assert set(re.findall(r"QO_[A-Z_]*[A-Z]", PAGE)) <= known


def test_precedence_is_documented() -> None:
    """The order on the page is the order of the code."""
    assert " > ".join(PRECEDENCE) in PAGE
    assert re.findall(r"^\| ([a-z. ]+) \| ", PAGE, re.MULTILINE)[1 : 1 + len(PRECEDENCE)] == list(PRECEDENCE)


def test_levels_are_documented() -> None:
    """The figures of each level stand on the page."""
    for preset, levels in LEVEL_PRESETS.items():
        assert f'`levels="{preset}"`' in PAGE
        for level, said in levels.items():
            assert f"| `{level}` | {said.max_retries} | {said.timeout:.0f} s |" in PAGE
