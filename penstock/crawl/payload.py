"""The bytes that a `payload_ref` names: in S3, in a file below an allowed folder, or on the web."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.crawl.fetch import Fetched, Fetcher, NotModified
from penstock.crawl.listing import Listed
from penstock.crawl.localfile import path_of_uri
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass

SCHEMES = ("s3://", "http://", "https://", "file://")


@dataclass(frozen=True, slots=True)
class PayloadReader:
    """Fetches payloads with the crawler's own guards and bounds."""

    fetcher: Fetcher
    roots: Sequence[Path] = ()
    """Folders below which files may be named; none: no file may."""
    off_limits: str | None = None
    """Where the raw store is, if it is in S3."""

    def read(self, reference: str) -> Fetched:
        """Raises DocumentFault when the payload cannot, or may not, be had."""
        if self.off_limits and reference.startswith(self.off_limits):
            message = f"{reference} lies in the raw store, which holds the bytes of every tenant"
            raise DocumentFault(ErrorClass.FORBIDDEN, message)
        try:
            got = self.fetcher.fetch(self._listed(reference))
        except ConfigurationError as error:
            # Whoever names a bucket that is not there must not stop the stage for everybody.
            raise DocumentFault(ErrorClass.FORBIDDEN, str(error)) from error
        if isinstance(got, NotModified):
            raise DocumentFault(ErrorClass.UNAVAILABLE, f"{reference} sent no content")
        return got

    def _listed(self, reference: str) -> Listed:
        if reference.startswith("file://"):
            return Listed(reference, reference, path=self._allowed(path_of_uri(reference)))
        return Listed(reference, reference)

    def _allowed(self, path: Path) -> Path:
        # Links are followed first: one below a root may lead out of it.
        real = path.resolve()
        if not any(real.is_relative_to(root.resolve()) for root in self.roots):
            raise DocumentFault(
                ErrorClass.FORBIDDEN,
                f"{path} is not below a folder named in PENSTOCK_PAYLOAD_ROOTS",
            )
        return real


def check_reference(reference: str) -> str | None:
    """What is wrong with the form of a reference, if anything is."""
    if reference.startswith(SCHEMES):
        return None
    return f"payload_ref must begin with {', '.join(SCHEMES)}"
