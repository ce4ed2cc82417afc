"""Settings of noise from plain values, and the stage that adds it."""

import pytest
from pydantic import ValidationError

from fedrec.federation.central_privacy import CentralPrivacy, CentralStage
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.stages import noise_from, stage_of


@pytest.mark.parametrize("settings", [Privacy(clip=0.5), CentralPrivacy(noise=2.0, clip=0.5)])
def test_plain_values_come_back_as_the_settings_they_are_of(settings):
    assert noise_from(settings.model_dump()) == settings


def test_values_that_name_no_mechanism_are_of_noise_on_uploads():
    assert noise_from({"clip": 0.25}) == Privacy(clip=0.25)
    with pytest.raises(ValidationError):
        noise_from({"mechanism": "centrally", "noise": 1.0})


def test_each_kind_of_noise_has_its_stage_with_its_seed_and_share():
    central = stage_of(CentralPrivacy(noise=2.0), 7, 0.25)
    assert isinstance(central, CentralStage)
    assert (central.settings, central.seed, central.share) == (CentralPrivacy(noise=2.0), 7, 0.25)
    assert stage_of(CentralPrivacy(noise=2.0), 7).share == 1.0
    own = stage_of(Privacy(clip=0.5), 9)
    assert isinstance(own, PrivacyStage)
    assert (own.settings, own.seed) == (Privacy(clip=0.5), 9)
