"""What a PDF says about itself; a value that cannot be read is left out."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]

VALUE_CHARS = 2000

# ISO 32000-1, 7.9.4: everything after the year may be left out; many writers drop the last quote.
_DATE = re.compile(
    r"(?:D:)?\s*(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?\s*(?:Z|([+-])(\d\d)'?(\d\d)?)?"
)


def read_title(document: "PdfDocument") -> str | None:
    return _value(document, "Title")


def read_metadata(document: "PdfDocument") -> dict[str, str | None]:
    """Author, subject, keywords and the time of creation, where they are given."""
    return {
        "author": _value(document, "Author"),
        "subject": _value(document, "Subject"),
        "keywords": _value(document, "Keywords"),
        "created": parse_date(_value(document, "CreationDate") or ""),
    }


def parse_date(value: str) -> str | None:
    """A PDF date as ISO 8601 in UTC, or nothing when it is none."""
    found = _DATE.match(value.strip())
    if found is None:
        return None
    year, *parts = found.groups()
    month, day, hour, minute, second = (int(part) if part else None for part in parts[:5])
    sign, hours, minutes = parts[5:]
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        local = datetime(
            int(year), month or 1, day or 1, hour or 0, minute or 0, second or 0, tzinfo=zone
        )
        return local.astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return None


def _value(document: "PdfDocument", key: str) -> str | None:
    try:
        return str(document.get_metadata_value(key))[:VALUE_CHARS].strip() or None
    except UnicodeDecodeError:
        return None
