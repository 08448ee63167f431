"""Pay as a posting states it: the two ends of a range and a currency."""

import re
from dataclasses import dataclass

_SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP", "₹": "INR", "¥": "JPY"}
_PREFIXED = {"US$": "USD", "C$": "CAD", "CA$": "CAD", "A$": "AUD", "AU$": "AUD", "NZ$": "NZD"}
_CODES = "USD|EUR|GBP|CHF|CAD|AUD|NZD|INR|JPY|SEK|NOK|DKK|PLN|CZK|SGD|HKD|ZAR|BRL|MXN"
_MONEY = rf"(?:(?:US|CA?|AU?|NZ)?\$|[€£₹¥]|\b(?:{_CODES})\b)"
_AMOUNT = r"\d{1,3}(?:[ ,.'’]\d{3})+(?:\.\d{1,2})?|\d+(?:\.\d{1,2})?"
_TO = r"\s*(?:-|–|—|to|and|up to|bis)\s*"
_PAY = re.compile(
    rf"(?P<before>{_MONEY})\s*(?P<low>{_AMOUNT})\s*(?P<lk>[kK]\b)?"
    rf"(?:{_TO}(?:{_MONEY})?\s*(?P<high>{_AMOUNT})\s*(?P<hk>[kK]\b)?)?(?:\s*(?P<code>{_CODES})\b)?"
    rf"|(?<![\w.,])(?P<low2>{_AMOUNT})\s*(?P<lk2>[kK]\b)?\s*(?:{_MONEY})?"
    rf"(?:{_TO}(?P<high2>{_AMOUNT})\s*(?P<hk2>[kK]\b)?)?\s*(?P<after>{_MONEY})"
)
_MONEY_SIGN = re.compile(_MONEY)
_THOUSANDS = re.compile(r"\d[kK]\b|\d{2,3}[,.]\d{3}\b")
_PAY_WORD = re.compile(
    r"salary|compensation|\bpay\b|per year|per annum|annual|p\.a\.|/ ?(?:yr|year|hour|hr|month|day)"
    r"|per hour|hourly|per month|base|gehalt|\bwage|ote\b|a year|an hour|remuneration|package",
    re.IGNORECASE,
)
_NOT_PAY = re.compile(
    r"revenue|raised|funding|series [a-e]\b|million|billion|\bbn\b|valuation|budget|arr\b|customers"
    r"|bonus of|sign-on|stipend|referral|allowance",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Salary:
    """Pay as stated, by the year or by the hour; one figure alone is both ends."""

    low: float
    high: float
    currency: str


def find_salary(text: str) -> Salary | None:
    """The first sum that a line presents as pay."""
    for line in text.split("\n"):
        if _may_hold_pay(line) and (found := _read_pay(line)):
            return found
    return None


def currency_code(text: str) -> str | None:
    """The ISO code for a code or sign."""
    sign = text.strip().upper()
    return _PREFIXED.get(sign) or _SYMBOLS.get(sign) or (sign if len(sign) == 3 else None)


def _may_hold_pay(line: str) -> bool:
    return bool(_MONEY_SIGN.search(line) and (_PAY_WORD.search(line) or _THOUSANDS.search(line)))


def _read_pay(line: str) -> Salary | None:
    for match in _PAY.finditer(line):
        around = line[max(0, match.start() - 30) : match.end() + 20]
        if not _NOT_PAY.search(around) and (pay := _salary_of(match)):
            return pay
    return None


def _salary_of(match: re.Match[str]) -> Salary | None:
    low, high = match["low"] or match["low2"], match["high"] or match["high2"]
    low_k, high_k = match["lk"] or match["lk2"], match["hk"] or match["hk2"]
    currency = currency_code(match["code"] or match["before"] or match["after"])
    first = _amount(low, bool(low_k or (high and high_k and len(low) <= 3)))
    last = _amount(high, bool(high_k or (low_k and len(high) <= 3))) if high else first
    plausible = 5 <= first <= last <= 5_000_000 and last <= first * 10
    return Salary(first, last, currency) if plausible and currency else None


def _amount(digits: str, thousands: bool) -> float:
    grouped = re.fullmatch(r"\d{1,3}(?:[ ,.'’]\d{3})+(\.\d{1,2})?", digits)
    cents = grouped[1] or "" if grouped else ""
    whole = digits.removesuffix(cents) if cents else digits
    plain = re.sub(r"[ ,.'’]", "", whole) + cents if grouped else digits
    return float(plain) * (1000 if thousands else 1)
