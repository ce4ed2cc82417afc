"""A wrong setting is one sentence that says whose it is, which one, and why."""

from typing import Any

import pytest
from pydantic import Field, model_validator

from fedrec.errors import ConfigError
from fedrec.federation.config import LearnedConfig, validated


class Settings(LearnedConfig):
    widths: tuple[int, ...] = (4, 2)
    memory: float | tuple[float, ...] | None = None
    share: float = Field(0.5, ge=0, le=1)

    @model_validator(mode="after")
    def _narrowing(self) -> "Settings":
        if list(self.widths) != sorted(self.widths, reverse=True):
            raise ValueError("widths must not grow")
        return self


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epoch": 3}, "unknown setting of mine 'epoch'; did you mean 'epochs'?"),
        ({"epochs": 0}, "mine: setting epochs: Input should be greater than or equal to 1."),
        ({"share": float("nan")}, "mine: setting share: Input should be a finite number."),
        ({"optimizer": "sgdd"}, "mine: setting optimizer: Input should be 'adam' or 'sgd'."),
        ({"widths": 8}, "mine: setting widths: Input should be a valid tuple, written as a list, such as [1,2]."),
        ({"widths": (2, 4)}, "mine: widths must not grow."),
        (
            {"memory": (1, "x")},
            "mine: setting memory[1]: Input should be a valid number, unable to parse string as a number.",
        ),
    ],
)
def test_the_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        validated(Settings, "mine", options)
    assert str(error.value) == sentence


def test_right_settings_are_taken() -> None:
    assert validated(Settings, "mine", {"widths": [8, 4], "memory": 2}).model_dump(include={"widths", "memory"}) == {
        "widths": (8, 4),
        "memory": 2.0,
    }
