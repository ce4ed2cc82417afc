"""``import fedrec`` is quick, and yet everything is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fedrec


def in_a_new_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_public_names_are_all_there() -> None:
    assert set(fedrec.__all__) == set(fedrec._HOME)
    for name in fedrec.__all__:
        assert getattr(fedrec, name) is not None
        assert name in dir(fedrec)


def test_a_public_name_is_the_thing_itself() -> None:
    from fedrec.running.options import RunOptions

    assert fedrec.RunOptions is RunOptions


def test_modules_can_be_reached_without_importing_them_by_name() -> None:
    program = "import fedrec; print('fedmf' in fedrec.methods.names())"
    assert in_a_new_process(program) == "True"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = fedrec.trian


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = (
        "import sys, fedrec; print([n for n in ('torch', 'numpy', 'numba', 'pyarrow', 'pydantic') if n in sys.modules])"
    )
    assert in_a_new_process(program) == "[]"


def test_asking_for_the_version_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom fedrec.cli import main\nmain(['--version'])\n"
        "print([n for n in ('torch', 'numpy', 'rich', 'typer') if n in sys.modules])"
    )
    assert in_a_new_process(program).splitlines()[1] == "[]"


@pytest.mark.parametrize("words", [["data", "list"], ["data", "stats", "demo"], ["data", "stats", "no-such-set"]])
def test_commands_on_data_load_no_torch(words: list[str]) -> None:
    program = (
        f"import sys\nfrom fedrec.cli import main\ntry:\n    main({words})\nexcept SystemExit:\n    pass\n"
        "print([n for n in ('torch', 'numba', 'scipy') if n in sys.modules])"
    )
    assert in_a_new_process(program).splitlines()[-1] == "[]"


def test_only_deployment_imports_flower() -> None:
    program = (
        "import sys, fedrec, fedrec.api, fedrec.methods, fedrec.cli.app, fedrec.deploy.site, fedrec.deploy.run\n"
        "print([n for n in ('flwr', 'cryptography', 'grpc') if n in sys.modules])"
    )
    assert in_a_new_process(program) == "[]"


def test_flower_is_imported_with_everything_it_would_send_elsewhere_switched_off() -> None:
    program = (
        "import os\nos.environ['FLWR_TELEMETRY_ENABLED'] = '1'\nimport fedrec.deploy.flower.node\n"
        "from flwr.supercore import telemetry\n"
        "print(telemetry.FLWR_TELEMETRY_ENABLED, os.environ['FLWR_DISABLE_UPDATE_CHECK'])"
    )
    assert in_a_new_process(program) == "0 1"
