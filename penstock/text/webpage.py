"""Any web page: the job posting it is about, or its main content."""

from penstock.documents import ExtractedText, RawDocument
from penstock.text.html.page import extract_page, read_page
from penstock.text.postings.posting import extract_posting


def extract_web_page(raw: RawDocument) -> ExtractedText:
    """The readable text of a page, with the fields of a posting when it is one."""
    page = read_page(raw)
    return extract_posting(page, raw.name) or extract_page(page)
