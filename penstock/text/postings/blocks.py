"""The body of a posting as blocks: headings, list items and paragraphs, in reading order."""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from penstock.text.html import BLOCKS, HEADINGS, SKIPPED, find_hidden, parse_tree

# Ranks of headings: 1 to 6 are h1 to h6; a line that only looks like a heading is below them.
LOOKS_LIKE_HEADING = 7
_HEADING_CHARS = 120
_ITEM_CHARS = 800

_TAG = re.compile(r"<[a-zA-Z/][^<>]*>")
_ESCAPED_TAG = re.compile(r"&(amp;)*lt;/?[a-zA-Z]")
_BULLET = re.compile(r"^(?:[-–—*•·●▪◦‣∙○■□➢➤►▶✓✔→※]|\(?\d{1,2}[.)])\s+(?=\S)|^[•●▪◦‣➢✓✔·](?=\w)")
_INLINE_BULLET = re.compile(r"\s+(?=[•●▪◦‣➢✓✔]\s)")
_BOLD_STYLE = re.compile(r"font-weight\s*:\s*(bold|[6-9]00)")
_TITLE_CLASS = re.compile(
    r"(^|[-_ ])(sub)?(title|heading|headline|header)s?($|[-_ ])", re.IGNORECASE
)
_EMPHASIS = frozenset({"b", "strong", "u"})
_GROUPS = frozenset(
    (
        *("article", "aside", "body", "dd", "details", "div", "dl", "fieldset", "form", "main"),
        *("section", "table", "tbody", "td", "tr"),
    )
)
# Code holds data for scripts, labels are parts of forms.
_SKIPPED = SKIPPED | {"code", "input", "label"}


@dataclass(frozen=True, slots=True)
class Block:
    """One line of a posting, and what its markup says about it."""

    text: str
    rank: int = 0
    """0 is no heading; otherwise the smaller, the more important."""
    item: bool = False
    group: int = 0
    """Blocks with the same number lie in the same element."""
    linked: bool = False
    """All of it is a link, as in menus."""

    def __str__(self) -> str:
        return f"- {self.text}" if self.item else self.text


Blocks = tuple[Block, ...]


def join_blocks(blocks: Iterable[Block]) -> str:
    """The blocks as text, one a line."""
    return "\n".join(map(str, blocks))


def letters_only(blocks: Iterable[Block]) -> str:
    """Only the letters and digits, to compare texts whatever their markup."""
    return re.sub(r"[\W_]+", "", "".join(block.text for block in blocks)).casefold()


def read_blocks(text: str) -> list[Block]:
    """The blocks of a text that may be HTML, also escaped once or twice."""
    for _ in range(2):
        if _ESCAPED_TAG.search(text) and not _TAG.search(text):
            text = html.unescape(text)
    if not _TAG.search(text):
        rows = html.unescape(text).splitlines()
        lines = (line for row in rows for line in _INLINE_BULLET.split(row))
        return [block for line in lines if (block := _make_block(" ".join(line.split())))]
    tree = parse_tree(f"<html><body>{text}</body></html>")
    return read_tree(tree, frozenset(find_hidden(tree)))


def _make_block(
    text: str, rank: int = 0, item: bool = False, group: int = 0, linked: bool = False
) -> Block | None:
    bare = _BULLET.sub("", text)
    item = item or bare != text
    if not bare or not any(map(str.isalnum, bare)):
        return None
    if item or len(bare) > _HEADING_CHARS:
        rank = 0
    elif not rank and bare.isupper() and len(bare) > 3:
        rank = LOOKS_LIKE_HEADING
    return Block(bare, rank, item, group, linked)


def read_tree(root: Any, skipped: frozenset[Any]) -> list[Block]:
    """The blocks under an element, without those under the skipped ones."""
    from lxml import etree  # type: ignore[import-untyped]

    reader = _Reader()
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        if event == "start" and (_is_skipped(element) or element in skipped):
            walk.skip_subtree()
            reader.skipping = element
        elif event == "start":
            reader.open(element)
        else:
            reader.close(element)
    reader.flush()
    return reader.blocks


class _Reader:
    """Collects the text of one line at a time, with the emphasis it carries."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.skipping: Any = None
        self._pieces: list[str] = []
        self._open: list[tuple[Any, int, bool]] = []
        """Elements, each with its number and whether it is an item of a list."""
        self._opened = 0
        self._bold = 0
        self._links = 0
        self._plain_chars = 0
        self._unlinked_chars = 0

    def open(self, element: Any) -> None:
        if element.tag in BLOCKS:
            self.flush()
            self._opened += 1
            is_item = element.tag == "li" and _is_item(element)
            self._open.append((element, self._opened, is_item))
        self._bold += _is_bold(element)
        self._links += element.tag == "a"
        self._add(element.text)

    def close(self, element: Any) -> None:
        if element is self.skipping:
            self.skipping = None
        else:
            if element.tag in BLOCKS:
                self.flush()
                self._open.pop()
            self._bold -= _is_bold(element)
            self._links -= element.tag == "a"
        self._add(element.tail)

    def flush(self) -> None:
        if text := " ".join("".join(self._pieces).split()):
            item = any(is_item for *_, is_item in self._open)
            linked = not self._unlinked_chars
            if block := _make_block(text, self._rank(), item, self._group(), linked):
                self.blocks.append(block)
        self._pieces.clear()
        self._plain_chars = self._unlinked_chars = 0

    def _add(self, text: str | None) -> None:
        if text:
            self._pieces.append(text)
            letters = sum(map(str.isalnum, text))
            self._plain_chars += 0 if self._bold else letters
            self._unlinked_chars += 0 if self._links else letters

    def _rank(self) -> int:
        if not self._open:
            return 0
        for element, *_ in reversed(self._open[-3:]):
            if element.tag in HEADINGS:
                return HEADINGS[element.tag]
        own = self._open[-1][0]
        titled = own.tag in ("dt", "summary") or _TITLE_CLASS.search(own.get("class") or "")
        return LOOKS_LIKE_HEADING if titled or not self._plain_chars else 0

    def _group(self) -> int:
        """The innermost group element that holds more than this line."""
        groups = [(element, number) for element, number, _ in self._open if element.tag in _GROUPS]
        if groups and not any(child.tag in BLOCKS for child in groups[-1][0]):
            groups.pop()
        return groups[-1][1] if groups else 0


def _is_skipped(element: Any) -> bool:
    """A button is skipped, except in a heading: that of a section that folds out."""
    if element.tag == "button":
        return element.getparent().tag not in HEADINGS
    return element.tag in _SKIPPED


def _is_bold(element: Any) -> bool:
    style = element.get("style")
    return element.tag in _EMPHASIS or bool(style and _BOLD_STYLE.search(style))


def _is_item(element: Any) -> bool:
    """Whether it is one item; some pages have whole sections with headings in list items."""
    if any(child.tag in HEADINGS for child in element.iter()):
        return False
    return sum(map(len, element.itertext())) <= _ITEM_CHARS


def _words(*patterns: str) -> re.Pattern[str]:
    # Typographic apostrophes are as common as straight ones: a dot stands for both.
    return re.compile("|".join(patterns), re.IGNORECASE)


# Headings of requirements.
REQUIREMENTS = _words(
    r"requirement|qualification|\bmust.haves?\b|^required\b|prerequisite",
    r"anforderung|voraussetzung|qualifikation|(ihr|dein|das|unser) .{0,20}profil|^profil\b",
    r"profil (re(cherch|quis)|souhait|attendu|id[ée]al)|(votre|ton|le) profil|compétences",
    r"pr[ée].?requis|exigences|requisit|(tu|su|el) perfil|perfil (buscado|requerido|deseado)",
    r"qualificaç|^(il tuo|o seu|seu) (profilo|perfil)|functie.?eisen|(jouw|je|het) profiel",
)
# Headings of optional requirements.
BONUS = _words(
    r"nice.to.haves?|\bpreferr?ed\b|bonus (points?|if|skills|qualif|exper)|^(a )?bonus\W*$",
    r"\bplus(es)?\b(?! ?\d)|\bdesir(ed|able)|(good|great) to have|extra credit|stand out",
    r"sets? you apart|even better|advantageous|strong candidates (may|might|will|often)",
    r"von vorteil|wünschenswert|idealerweise|\batouts?\b|serait un|deseable|se valora|valorable",
)
# Headings that speak to the applicant.
EXPECTATIONS = _words(
    r"who you are|about you\b|what (it takes|makes (you|a) )",
    r"\b(good|great|right|perfect) (fit|match)",
    r"what (you|we)\b.{0,12} (bring|needs?|haves?|expect|seek|require)\b",
    r"what (we|we.re|we are) .{0,8}look(ing)? (for|at)|what we look for",
    r"who we.{0,9} look(ing)? for",
    r"^you.{0,4}( will| should| must| may| might|.ll|.ve)? (have|bring|need|possess|are|got)\b",
    r"you (may|might|could|will|would|.ll) (be .{0,20}(fit|match|success)|thrive|excel|succeed)",
    r"\bif( you)?( have| are| also)?\W*$",
    r"^(skills|experience|education|knowledge|competenc\w+|background)\W*$",
    r"\b(your|key|core|required|technical|essential|the) (profile|skills|experience|background)",
    r"your (expertise|qualities|strengths|toolkit)|(ideal|successful) candidate",
    r"(skills|education|experience|knowledge)( and|,| &| ?/) ?(skills|exper|educat|knowl|abil)",
    r"(das|was) (bringst|bringen) |was (du|sie) mitbring|mitbring(st|en)|wen wir suchen",
    r"wir erwarten",
    r"das (bist|zeichnet)|(du|sie) (hast|bist|haben|verfüg)|wir suchen|erfahrung und kenntnisse",
    r"(vous|tu) (êtes|avez|es|as|possédez)\b|(que|qui) nous (re)?cherchons|vos (atouts|compét)",
    r"(lo )?que (buscamos|necesit|esperamos|pedimos)|(sobre|acerca de) (ti|usted)\b|qué buscamos",
    r"(cosa|chi) cerchiamo|o que (buscamos|procuramos|esperamos)",
    r"wat (je|jij|wij) (mee|zoeken|vragen)",
)
# Sentences and general words, which count only without a clearer heading.
BROAD_EXPECTATIONS = _words(r"look(ing)? for\b|\b(skills?|experience)\W*$|^experience\b")
# Headings of the tasks.
TASKS = _words(
    r"responsibilit|\bduties\b|what you.{0,8} (do|be doing|work|own|build)\b",
    r"^you.{0,5}(will|.ll)\W*$",
    r"^(in|about) th(is|e) (role|job|position|opportunity)|^the (role|job)\b",
    r"your (role|mission|impact)",
    r"the role involves|day.(to|by).day|job (description|summary)|a (typical )?day in",
    r"key accountab",
    r"aufgaben|(dich|sie|dir) erwarte|tätigkeit|missions?\b|vos responsab|le poste",
    r"(tus )?funciones",
    r"responsabil|tareas|(tu|el) (rol|puesto)|mansioni|atividades|taken\b|werkzaamheden",
)
# Headings that end the requirements.
OTHER = _words(
    TASKS.pattern,
    r"benefit|\bperks|we offer|what.s in it|what you.{0,6} get|compensation|\bsalary|\bpay\b",
    r"rewards",
    r"about (us|the|our)\b|^about (?!you\b)|who we are|equal.{0,12}opportunit|how to apply|apply",
    r"\bour (culture|values|team|mission|process|company|stack|tech)|why (join|work|you|us|we)\b",
    r"interview|hiring process|life at|additional information|logistics|work(ing)? environment",
    r"diversity|inclusi|accommodation|privacy|disclaimer|\blocation\b|the team|join us|notice",
    r"\bprojects?\b",
    r"wir bieten|bieten wir|über uns|wer wir sind|kontakt|bewerb|warum|dafür stehen|freuen",
    r"nous (offrons|proposons)|avantages|à propos|qui sommes|rejoi|pourquoi|processus|postuler",
    r"ofrecemos|beneficios|sobre (nosotros|la empresa|el)|quiénes somos|por qué|cómo aplicar",
    r"offriamo|chi siamo|oferecemos|sobre nós|wij bieden|over ons|wat wij bieden",
)
# Words of lines that state a requirement.
SKILLS = _words(
    r"experience|\byears?\b|degree|bachelor|master.s|ph\.?d|proficien|knowledge|familiar",
    r"ability to",
    r"understanding|fluen|expertise|background|track record|\bskills?\b|certif|passion|comfortable",
    r"^(you|strong|excellent|proven|solid|demonstrated|able|willing|capable|must)\b|\beligib",
    r"licen[sc]e",
    r"erfahr|kenntniss|abschluss|studium|ausbildung|fähigkeit|sicher im|bereitschaft|verhandlung",
    r"expérience|maîtris|diplôme|connaissance|capacité|formation|bac ?\+|aisance",
    r"experiencia|conocimiento|titulación|dominio|capacidad|licenciatura|grado en|nivel de",
    r"formación",
)
YOU = _words(r"\byou(r|.re|.ve|.ll)?\b|\b(du|dein\w*|sie|ihre?\w*|vous|votre|vos|tu|tus|usted)\b")
# Sums of money as they stand in a pay range.
MONEY_RANGE = re.compile(
    r"(?:USD|EUR|GBP|CAD|AUD|[$€£])\s?\d(?:[\d,.']*\d)?\s?[kK]?\s*(?:/\w+\s*)?"
    r"(?:[-–—]|to|and|bis|à|a)+\s*(?:USD|EUR|GBP|CAD|AUD|[$€£])?\s?\d(?:[\d,.']*\d)?\s?[kK]?"
    r"(?:\s*(?:USD|EUR|GBP|CAD|AUD|€|£))?"
)
# Paragraphs at the end of a posting, under any heading.
CLOSING = _words(
    r"equal.{0,12}opportunit|discriminat|regardless of|without regard to|protected veteran",
    r"accommodation|fair chance|criminal histor|e-verify|background check|privacy (policy|notice)",
    r"(salary|pay|compensation|hiring) range|base (pay|salary|compensation)|401\(?k",
    r"health insurance",
    r"our benefits",
    r"chancengleichheit|schwerbehind|unabhängig von|égalité des chances|igualdad de oportunidades",
    MONEY_RANGE.pattern,
)


_RUN_CHARS = 500

# Capitals distinguish a heading from the same words in a sentence.
_KINDS = (
    r"(?:(?:Minimum|Basic|Preferred|Required|Desired|Key|Additional|Job|Your|Core|Essential|Other"
    r"|Technical|Professional|Primary|General) ){0,2}"
    r"(?:Qualifications|Requirements|Responsibilities|Skills|Duties|Experience)"
    r"(?: (?:and|&) (?:Qualifications|Requirements|Responsibilities|Skills|Experience|Education))?"
)
_PHRASES = (
    r"Who You Are|What (?:You|We)(?:[’']ll|[’']re| Will| Are)?"
    r" (?:Do|Bring|Need|Have|Offer|Looking For)"
    r"|About (?:You|Us|(?:the|The) (?:Role|Job|Team|Position|Company))|Nice[ -][Tt]o[ -][Hh]aves?"
    r"|Must[ -][Hh]aves?|Benefits|Ihr Profil|Dein Profil|(?:Ihre|Deine) Aufgaben|Wir bieten"
    r"|Profil recherché|Vos missions|Requisitos|Funciones|Ofrecemos"
)
_HEADING = re.compile(rf"(?<!\w)({_KINDS}|{_PHRASES})(?:\s*:\s*|\s+(?=[A-Z0-9•*-]))")
_ONE_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def split_long_paragraphs(blocks: Sequence[Block]) -> list[Block]:
    """The blocks with long paragraphs broken at the headings and closing statements in them."""
    return [part for block in blocks for part in _break(block)]


def _break(block: Block) -> Iterator[Block]:
    if len(block.text) < _RUN_CHARS or block.item:
        yield block
        return
    place = 0
    for heading in _HEADING.finditer(block.text):
        # A single word needs a colon: without one it may begin a sentence.
        if ":" in heading[0] or not _ONE_WORD.fullmatch(heading[1]):
            yield from _paragraphs(block.text[place : heading.start()])
            yield Block(heading[1], LOOKS_LIKE_HEADING)
            place = heading.end()
    yield from _paragraphs(block.text[place:])


def _paragraphs(text: str) -> Iterator[Block]:
    sentences = _SENTENCE.split(text.strip())
    closing = (place for place, words in enumerate(sentences) if CLOSING.search(words))
    first = next(closing, len(sentences))
    pieces = (" ".join(sentences[:first]), " ".join(sentences[first:]))
    return (Block(piece) for piece in pieces if piece)


def drop_closing(blocks: Sequence[Block]) -> list[Block]:
    """The posting without closing statements at its end, in elements of their own."""
    sizes = Counter[int]()
    for block in blocks:
        sizes[block.group] += len(block.text)
    body = max(sizes, key=lambda group: sizes[group], default=0)
    end = len(blocks)
    for group, members in groupby(reversed(blocks), key=lambda block: block.group):
        last = list(members)
        if group == body or any(block.item for block in last):  # a list is part of the posting
            break
        closing = sum(len(block.text) for block in last if CLOSING.search(block.text))
        if 2 * closing <= sum(len(block.text) for block in last):
            break
        end -= len(last)
    return list(blocks[:end] or blocks)


def find_pay_range(blocks: Sequence[Block]) -> str:
    """The amounts in the first line that states a pay range."""
    found = (MONEY_RANGE.search(block.text) for block in blocks if CLOSING.search(block.text))
    return next((match[0].strip() for match in found if match), "")
