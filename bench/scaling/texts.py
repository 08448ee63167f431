"""Short résumés: reading them costs little, so that the models are what is waited for."""

import random
from pathlib import Path

_TITLES = ("Controls engineer", "Plant operator", "Surveyor", "Data analyst", "Welder", "Planner")
_SKILLS = ("Python", "PostgreSQL", "hydraulics", "PLC", "inspection", "budgets", "Kubernetes")
_PLACES = ("Inverness", "Tromsø", "Bergen", "Grenoble", "Graz", "Porto", "Vigo", "Ljubljana")


def write_texts(folder: Path, count: int) -> Path:
    """Distinct texts of about 550 characters: models are not asked about the same one twice."""
    folder.mkdir()
    for number in range(count):
        chance = random.Random(f"{folder.name}-{number}")
        text = "\n".join(_line(chance) for _ in range(6))
        (folder / f"{number:05}.txt").write_text(f"Candidate {number} of {folder.name}\n{text}\n")
    return folder


def _line(chance: random.Random) -> str:
    since = chance.randrange(1980, 2015)
    return (
        f"{chance.choice(_TITLES)} in {chance.choice(_PLACES)}, {since} to {since + 8}: "
        f"{chance.choice(_SKILLS)} and {chance.choice(_SKILLS)}, {chance.randrange(10**6)} hours."
    )
