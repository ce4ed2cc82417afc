"""Finds out what the paths on a command line are: run folders, studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from fedrec.errors import ConfigError, FedrecError
from fedrec.report.rows import Finder, SavedRun, Section, renamed, section_of, study_of
from fedrec.running.files import read_object
from fedrec.running.saved import is_finished, read_result
from fedrec.studies.result import CellRecord, StudyResult

STUDY = "study.json"


def read_sections(paths: Sequence[Path]) -> list[Section]:
    """One section for each study, in order, and one for all single runs."""
    paths = list(dict.fromkeys(path.resolve() for path in paths))
    if not paths:
        raise ConfigError("nothing to report; give folders of finished runs, or of studies.")
    studies = [path for path in paths if _is_study(path)]
    runs = [_read_run(path) for path in paths if path not in studies]
    sections = [section_of(study_of(runs), _among(runs), "runs")] if runs else []
    for path in studies:
        file = path / STUDY if path.is_dir() else path
        study = read_study(file)
        sections.append(section_of(study, _beside(file.parent), study.name))
    keys = [section.key for section in sections]
    return [
        renamed(section, f"{section.key}-{n}") if keys.index(section.key) < n else section
        for n, section in enumerate(sections)
    ]


def read_study(path: Path) -> StudyResult:
    """The result of a study."""
    content = read_object(path, "run the study again")
    try:
        return StudyResult.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "something"
        raise FedrecError(
            f"{path} is not a complete result of a study ({where} missing or wrong); run it again."
        ) from None


def _is_study(path: Path) -> bool:
    return path.is_file() or (path / STUDY).is_file()


def _read_run(path: Path) -> SavedRun:
    if not path.is_dir():
        raise ConfigError(f"{path} does not exist; give the folder of a finished run, or of a study.")
    return SavedRun(path, read_result(path))


def _among(runs: list[SavedRun]) -> Finder:
    known = {run.folder.as_posix(): run for run in runs}
    return lambda cell: known.get(cell.folder)


def _beside(folder: Path) -> Finder:
    def find(cell: CellRecord) -> SavedRun | None:
        place = folder / cell.folder
        return SavedRun(place, read_result(place)) if cell.folder and is_finished(place) else None

    return find
