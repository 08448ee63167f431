"""Professional certifications, by pattern and by the section that lists them."""

import re
from collections.abc import Iterator

from penstock.llm.rules.layout import Line, Part, Reading

_ISSUERS = (
    "AWS|Amazon|Microsoft|Google Cloud|Google|HashiCorp|Salesforce|Oracle|Cisco|Red Hat|Databricks"
    "|Snowflake|Tableau|VMware|HubSpot|ISTQB|Professional|Azure|SAP|NVIDIA|MongoDB"
)
_CAPITALISED = r"\d{1,3}\b|[A-Z][\w+&/’'.-]*[\w+]|[IVX]+\b|&"
_LEVEL = r"(?:\s*[–—-]\s*(?:Associate|Professional|Specialty|Practitioner|Foundational|Expert))?"
_CERTIFIED = (
    rf"(?:(?:{_ISSUERS})\s+)?Certified:?(?:\s+(?:{_CAPITALISED}|in(?=\s[A-Z])|of(?=\s[A-Z]))){{1,7}}"
    rf"{_LEVEL}(?:\s*\([A-Z][\w+-]{{1,7}}\))?"
)
_CLOUD = r"Google (?:Cloud )?(?:Associate|Professional) (?:[A-Z]\w+ ?){1,3}(?<! )"
_NAMED = (
    r"Project Management Professional(?:\s*\(PMP\)|®)?|Professional Scrum Master(?:\s+I{1,3})?"
    r"|Lean Six Sigma (?:Green|Black|Yellow) Belt|Six Sigma (?:Green|Black|Yellow) Belt"
    r"|CompTIA [A-Z][\w]*\+|CompTIA A\+|(?<!\w)Security\+|(?<!\w)Network\+"
    r"|ITIL(?: v?[34])?(?: Foundation)?|PRINCE2(?: (?:Foundation|Practitioner))?"
    r"|CFA(?: Level (?:I{1,3}|[123]))?|OSHA[ -](?:10|30)(?:-Hour)?|EPA (?:Section )?608"
    r"|Series (?:7|6|63|65|66)\b|TOGAF(?: 9(?:\.\d)?)?|PSM I{1,3}|SAFe \w+"
    r"|LEED (?:AP|Green Associate)"
    r"|Journeyman Electrician License|Master Electrician License|Commercial Driver'?s License"
)
_ACRONYMS = (
    "PMP|CPA|CKA|CKAD|CKS|CISSP|CISM|CISA|CEH|OSCP|CCNA|CCNP|CCIE|CSM|CSPO|PSM|SHRM-CP|SHRM-SCP"
    "|PHR|SPHR|ACCA|CIMA|CMA|CIA|FRM|BLS|ACLS|PALS|CCRN|CSCP|CPIM|CAPM|PMI-ACP|CBAP|CFE|CDL"
    "|MCSE|MCSA|RHCE|RHCSA|GPHR|NCLEX-RN|TNCC|CPC|ServSafe"
)
_PATTERN = re.compile(
    rf"(?<![\w-])(?=[A-Z])(?:{_CERTIFIED}|{_CLOUD}|{_NAMED}|(?:{_ACRONYMS})(?![\w-]))"
)
# Cheap to search, and in every line that the pattern can match.
_HINT = re.compile(r"[A-Z]{3}|Certified|[a-zA]\+|Professional|Belt|SAFe|Series|License|PRINCE|Serv")
_EXPANSIONS = {
    "PMP": "project management professional",
    "CPA": "certified public accountant",
    "CKA": "certified kubernetes administrator",
    "CSM": "certified scrummaster",
    "CISSP": "certified information systems security professional",
    "CMA": "certified management accountant",
    "PSM": "professional scrum master",
}
_TAIL = re.compile(r"\s*(?:[,|(•·;]|\s[–—-]\s|\b(?:19|20)\d\d\b).*")
_MAX_ITEM_WORDS = 8


def find_certifications(reading: Reading) -> list[str]:
    """Certifications in the order of the text, each once."""
    found: list[str] = []
    items = set(reading.first_block(Part.CERTIFICATIONS))
    for line in reading.lines:
        for name in _certifications_of(line, is_item=line in items):
            if not any(_covers(other, name) for other in found):
                found = [other for other in found if not _covers(name, other)]
                found.append(name)
    return found


def _certifications_of(line: Line, *, is_item: bool) -> Iterator[str]:
    # "CMA" in a school's name or "CIA" in a hobby is no certification.
    if line.part is Part.OTHER or line.heading:
        return
    hinted = _HINT.search(line.text) is not None
    matches = [m[0].strip(" .,-") for m in _PATTERN.finditer(line.text)] if hinted else []
    yield from matches
    if not matches and is_item:
        item = _TAIL.sub("", line.text).strip(" .:-")
        if len(item) > 4 and len(item.split()) <= _MAX_ITEM_WORDS:
            yield item


def _covers(longer: str, shorter: str) -> bool:
    whole, part = longer.casefold(), shorter.casefold()
    if part in whole:
        return True
    expansion = _EXPANSIONS.get(shorter)
    return expansion is not None and expansion in whole
