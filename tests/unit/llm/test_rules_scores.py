"""The rules are right often enough, and know when they are not."""

import pytest

from .scoring import Score, mean, score_samples

THRESHOLD = 0.65
FLOORS = {
    "resume": {
        "primary_skills": 0.85,
        "recent_job_titles": 0.85,
        "years_experience_total": 0.85,
        "certifications": 0.85,
        "industries": 0.75,
    },
    "job_posting": {
        "title": 0.9,
        "company": 0.8,
        "location": 0.9,
        "employment_type": 0.9,
        "salary_min": 0.9,
        "salary_currency": 0.9,
        "seniority": 0.85,
        "requirements": 0.7,
        "skills": 0.85,
        "description": 0.75,
    },
    "document": {"title": 0.9, "authors": 0.85, "date": 0.85, "summary": 0.85, "topics": 0.65},
}
SIZES = {"resume": 20, "job_posting": 12, "document": 8}


def print_table(profile: str, scores: list[Score]) -> None:
    lines = [f"\n{profile}: {len(scores)} samples", f"{'sample':34} confidence  mean F1"]
    lines += [f"{s.sample.name:34} {s.confidence:10.2f} {s.mean:8.2f}" for s in scores]
    lines += [f"  {name:32} {value:19.2f}" for name, value in field_means(scores).items()]
    print("\n".join(lines))  # noqa: T201


def field_means(scores: list[Score]) -> dict[str, float]:
    names = scores[0].sample.expected
    return {name: mean(s.fields[name] for s in scores if name in s.fields) for name in names}


@pytest.mark.parametrize("profile", sorted(FLOORS))
def test_fields_come_near_their_labels(profile: str) -> None:
    scores = score_samples(profile)
    print_table(profile, scores)
    assert len(scores) >= SIZES[profile]
    means = field_means(scores)
    low = {name: means[name] for name, floor in FLOORS[profile].items() if means[name] < floor}
    assert not low


@pytest.mark.parametrize("profile", sorted(FLOORS))
def test_confident_answers_are_clearly_better(profile: str) -> None:
    scores = score_samples(profile)
    sure = [score.mean for score in scores if score.confidence >= THRESHOLD]
    unsure = [score.mean for score in scores if score.confidence < THRESHOLD]
    assert len(sure) > len(unsure) > 0
    assert mean(sure) >= 0.9
    assert mean(sure) - mean(unsure) >= 0.1
