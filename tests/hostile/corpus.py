"""The hostile corpus: damaged, trapped and mislabelled documents, the same ones every time."""

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random

from penstock.documents import RawDocument
from penstock.errors import ErrorClass
from tests.hostile.mutations import damage
from tests.hostile.office_traps import office_traps
from tests.hostile.pdf_traps import pdf_traps
from tests.hostile.seeds import PHRASE, Seed, make_seeds
from tests.hostile.traps import SENSIBLE, Case, data_traps, html_traps, text_traps, xml_traps

DAMAGED_PER_SEED = 18
# How many tags, keys, columns and words make a huge document here; the fuzz target takes more.
SCALE = 50_000

# Damage can turn a document into another kind, down to something nobody can name.
_AFTER_DAMAGE = SENSIBLE | {ErrorClass.UNSUPPORTED}
_SUFFIXES = ("", ".pdf", ".docx", ".html", ".txt", ".csv", ".json", ".xml", ".doc")
_MEDIA_TYPES = (
    None,
    "application/octet-stream",
    "text/plain",
    "application/pdf",
    "text/html; charset=utf-8",
    "application/json",
    "nonsense",
)


def damaged(seeds: Sequence[Seed], number: int = 0) -> Iterator[Case]:
    """Every seed, hurt in many ways."""
    random = Random(number)
    for seed in seeds:
        for count in range(DAMAGED_PER_SEED):
            how, content = damage(random, seed)
            name = f"{seed.name}-{count}-{how}{seed.suffix}"
            yield Case(RawDocument(name, content), _AFTER_DAMAGE)


def mislabelled(seeds: Sequence[Seed]) -> Iterator[Case]:
    """Every seed under every wrong name, and every wrong declared type."""
    for seed in seeds:
        labels: list[tuple[str, str | None]] = [(suffix, None) for suffix in _SUFFIXES]
        labels += [(suffix, kind) for kind in _MEDIA_TYPES for suffix in ("", seed.suffix)]
        for suffix, media_type in labels:
            raw = RawDocument(f"{seed.name}-as{suffix}", seed.content, media_type)
            yield Case(raw, frozenset({seed.fault}), "" if seed.fault else PHRASE)


def random_label(random: Random, seed: Seed) -> tuple[str, str | None]:
    """A suffix and a declared type: mostly right, so that every reader gets its share."""
    if random.random() < 0.7:
        return seed.suffix, None
    return random.choice(_SUFFIXES), random.choice(_MEDIA_TYPES)


def traps(scale: int = SCALE) -> Iterator[Case]:
    """Documents that were built to do harm."""
    texts = (kind(scale) for kind in (xml_traps, html_traps, data_traps, text_traps))
    return chain(*texts, office_traps(), pdf_traps())


def hostile_corpus() -> list[Case]:
    seeds = make_seeds()
    return [*damaged(seeds), *mislabelled(seeds), *traps()]
