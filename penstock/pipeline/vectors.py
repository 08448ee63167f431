"""Who embeds; and who else does, as long as search looks among the vectors of an older model."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.documents import Fault
from penstock.embed.embedder import Embedder
from penstock.errors import ConfigurationError
from penstock.pipeline.batches import compute
from penstock.search.identity import active_identity
from penstock.store.database import Tx

log = logging.getLogger(__name__)


def nobody(identity: str) -> None:
    """No embedder but the one that the settings name."""
    del identity


@dataclass(frozen=True, slots=True)
class Vectors:
    """The embedder of the settings, and a way to those of other identities."""

    embedder: Embedder
    others: Callable[[str], Embedder | None] = nobody

    @property
    def identity(self) -> str:
        return self.embedder.identity

    def older(self, tx: Tx) -> Embedder | None:
        """Whoever makes the vectors that search looks among, if these are not our own. What is
        new or changed gets one of those too: else it would not be found until the switch."""
        active = active_identity(tx)
        return None if active in (None, self.identity) else self.others(str(active))


def embed_older(
    embedder: Embedder, keys: Sequence[str], texts: Sequence[str]
) -> list[bytes | None]:
    """Vectors for search as it is now. One that cannot be had is no fault of the document, which
    is found again after the switch."""
    try:
        found = compute(lambda _, some: embedder.embed(some), keys, texts)
    except ConfigurationError as error:
        log.warning("new documents are not found by meaning before the switch: %s", error)
        return [None] * len(texts)
    return [None if isinstance(vector, Fault) else vector for vector in found]
