"""The employer of a posting: the name that the page repeats in the places where sites have it."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from penstock.text.charsets import clean_line
from penstock.text.html import find_all
from penstock.text.postings.fields import PageIdentity

_NAME_CHARS = 60
_LABEL_CHARS = 6
_LABEL = re.compile(
    r"(hiring )?(company|employer|organi[sz]ation)|arbeitgeber|unternehmen|entreprise|organisation"
    r"|employeur|empresa|azienda|werkgever|bedrijf|firma|pracodawca|会社(名)?|公司|회사",
    re.IGNORECASE,
)
_ABOUT = re.compile(r"(?:about|über|à propos de|sobre|over|om|o) (?:the )?(?=[A-Z])")
_COPYRIGHT = re.compile(
    r"(?:©|\bcopyright\b)[\s©]*(?:\d{4}(?:\s*[-–]\s*\d{4})?)?,?\s*", re.IGNORECASE
)
_ENDS = re.compile(r"\s*(?:(?<=\w{3})\.\s|[,|·(]\s|[|·(]|\s[-–—]\s|,|$)")
_AROUND = re.compile(
    r"^(?:(?:careers?|jobs?|work|life|karriere|werken|lavora\w*|trabaja\w*|praca"
    r"|(?:offene )?stellen\w*|emplois?|carrières?|empleos?|carreras?)"
    r" (?:at|with|@|bei|bij|chez|en|presso|con|w) |(?:at|the) )"
    r"| (?:(?:19|20)\d\d|careers?|jobs?|hiring|career (?:site|page)|recruiting|karriere|recrute"
    r"|logo|home ?page)$",
    re.IGNORECASE,
)
_NO_NAME = re.compile(
    r"(?:home|start|logo|jobs?|careers?|apply( now)?|accueil|inicio|startseite|us|you|empleo|menu"
    r"|the (?:role|team|job|company|position)|all rights reserved|description de poste)",
    re.IGNORECASE,
)
# Where names stand, and how sure that is: what begins with the name of another place supports it.
_PLACES = (
    (2.0, "//img[contains(concat(@class, @src, @alt, @id), 'logo')]/@alt"),
    (
        1.5,
        "(//header | //*[contains(@class, 'header') or contains(@class, 'brand')])//a[@href='/']",
    ),
    (1.5, "//a[@href='/']"),
    (3.0, "//*[contains(@class, 'company-name') or @itemprop='hiringOrganization']"),
    (1.0, "//b | //strong"),
    (1.0, "//footer//*[self::p or self::h4 or self::h5]"),
    (1.0, "//*[contains(@class, 'foot') or contains(@id, 'foot')]//p"),
)
_HOST = re.compile(r"^\w+://([^/?#]+)")
_LEAST = 2.0
_MOST_PLACES = 60


def find_company(tree: Any, identity: PageIdentity, job_title: str) -> str:
    """The name with the most places for it; empty when no place is sure enough."""
    stated = islice(_stated(tree, identity, job_title), _MOST_PLACES)
    found = [(weight, name) for weight, text in stated if (name := _tidy(text))]
    host = "".join(_HOST.findall(identity.addresses[0])).replace("-", "")
    labels = tuple(label for label in host.split(".") if len(label) > _LABEL_CHARS)

    def support(name: str) -> float:
        own = f"{_words(name)} "
        agreed = sum(weight for weight, text in found if f"{_words(text)} ".startswith(own))
        joined = _words(name).replace(" ", "")
        return agreed + 1.5 * (joined in host or any(map(joined.startswith, labels)))

    own_words = ("", _words(job_title))
    names = [
        name for _, name in found if len(name) <= _NAME_CHARS and _words(name) not in own_words
    ]
    best = max(names, key=lambda name: (support(name), len(name)), default="")
    if not best or support(best) < _LEAST:
        return ""
    # A logo may say "Acme" for "Acme Tools".
    longer = (name for name in names if f"{_words(name)} ".startswith(f"{_words(best)} "))
    return max((name for name in longer if 2 * support(name) >= support(best)), key=len)


def _stated(tree: Any, identity: PageIdentity, job_title: str) -> Iterator[tuple[float, str]]:
    yield 3.0, identity.site
    yield from ((2.0, name) for name in identity.names_beside(job_title))
    for weight, path in _PLACES:
        for place in find_all(path)(tree)[:3]:
            yield weight, clean_line(place if isinstance(place, str) else place.text_content())
    for element in tree.iter(
        "h1", "h2", "h3", "h4", "strong", "p", "dt", "th", "td", "div", "span", "small"
    ):
        text = clean_line(element.text or "")
        if _LABEL.fullmatch(text.rstrip(": ")) and (value := _after(element)) is not None:
            yield 4.0, clean_line(value.text_content())
        elif about := _ABOUT.match(text):
            yield 1.5, text[about.end() :]
        elif owned := _COPYRIGHT.match(text):
            yield 2.0, text[owned.end() :]


def _after(element: Any) -> Any:
    """What stands beside a label, or beside the cell that holds nothing else."""
    beside = element.getnext()
    return beside if beside is not None or element.tail else element.getparent().getnext()


def _tidy(text: str) -> str:
    """A name without the words around it; nothing when it is none."""
    name = _ENDS.split(_COPYRIGHT.sub("", text, count=1), maxsplit=1)[0].strip()
    while name and (bare := _AROUND.sub("", name).strip(" .,")) != name:
        name = bare
    return "" if _NO_NAME.fullmatch(name) else name


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
