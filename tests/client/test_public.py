"""The names `import qo` gives."""

import subprocess
import sys

import qo


def test_all_is_sorted_complete_and_importable() -> None:
    """Every name of __all__ is there, has a docstring, and every lazy name is in __all__."""
    assert qo.__all__ == sorted(qo.__all__)
    assert set(qo.__all__) == set(qo._HOME)
    for name in qo.__all__:
        assert getattr(qo, name).__doc__, name
    assert set(dir(qo)) == {*qo.__all__, "__version__"}


def test_errors_are_all_public() -> None:
    """Whatever qo raises can be caught by its name in `qo`."""
    from qo import errors

    raised = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert raised <= set(qo.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module."""
    assert not hasattr(qo, "Quue")


def test_importing_costs_nothing() -> None:
    """`import qo` alone imports nothing else of qo, and a queue does not import the worker or asyncio servers."""
    code = (
        "import sys, qo; assert not [name for name in sys.modules if name.startswith('qo.')]; "
        "qo.Queue('memory://'); assert 'qo.worker.worker' not in sys.modules; assert 'click' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
