"""A confidence says how often such values are right."""

import pytest

from penstock.llm import calibration
from penstock.llm.calibration import apply_curve, calibrate, fit_curve, read_curves


def test_a_fitted_curve_rises_and_tells_the_share_of_right_values() -> None:
    judged = [(0.9, 1.0)] * 45 + [(0.9, 0.0)] * 55 + [(0.5, 1.0)] * 20 + [(0.5, 0.0)] * 80
    curve = fit_curve(judged)
    assert apply_curve(curve, 0.9) == pytest.approx(0.45, abs=0.02)
    assert apply_curve(curve, 0.5) == pytest.approx(0.20, abs=0.02)
    assert [share for _, share in curve] == sorted(share for _, share in curve)


def test_steps_that_fall_are_put_together() -> None:
    judged = [(0.4, 1.0)] * 50 + [(0.8, 0.0)] * 50
    assert fit_curve(judged) == [(0.6, 0.5)]


def test_between_its_points_a_curve_is_straight_and_beyond_them_level() -> None:
    curve = [(0.2, 0.1), (0.6, 0.5)]
    values = [apply_curve(curve, raw) for raw in (0.0, 0.2, 0.4, 0.6, 1.0)]
    assert values == pytest.approx([0.1, 0.1, 0.3, 0.5, 0.5])


def test_without_a_curve_a_confidence_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {"rules": {"resume.primary_skills": [(0.0, 0.3), (1.0, 0.8)]}}
    monkeypatch.setattr(calibration, "read_curves", lambda: curves)
    assert calibrate("rules", "resume", "primary_skills", 1.0) == 0.8
    assert calibrate("rules", "resume", "industries", 0.7) == 0.7
    assert calibrate("a-model", "resume", "primary_skills", 0.65) == 0.65


def test_the_curves_of_this_version_lie_between_nothing_and_all() -> None:
    for curves in read_curves().values():
        for curve in curves.values():
            assert all(0 <= raw <= 1 and 0 <= share <= 1 for raw, share in curve)
            assert list(curve) == sorted(curve)
