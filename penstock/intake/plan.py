"""Which work a new node needs, and in which order."""

from dataclasses import dataclass
from enum import StrEnum

from penstock.documents import Stage
from penstock.intake.request import NewNode


class Order(StrEnum):
    """How a node goes on once its text is there; carried in the payload of its text item."""

    EXTRACT_FIRST = "extract_first"
    BESIDE = "beside"
    """Embedded at once, extracted beside it, and embedded again if that changed the text."""
    EMBED_ONLY = "embed_only"


@dataclass(frozen=True, slots=True)
class IntakeRules:
    """The defaults of whoever runs the intake."""

    extraction_enabled: bool
    extract_first: bool
    default_profile: str

    def order_of(self, node: NewNode) -> Order:
        first = node.extract_before_embed
        wanted = node.extract
        if wanted is None:
            wanted = self.extraction_enabled or bool(first)
        if not wanted:
            return Order.EMBED_ONLY
        return (
            Order.EXTRACT_FIRST
            if (self.extract_first if first is None else first)
            else Order.BESIDE
        )


def first_stages(node: NewNode, order: Order) -> tuple[Stage, ...]:
    """The stages whose work begins at once."""
    if node.has_payload:
        return (Stage.TEXT,)
    return {
        Order.EXTRACT_FIRST: (Stage.EXTRACT,),
        Order.BESIDE: (Stage.EMBED, Stage.EXTRACT),
        Order.EMBED_ONLY: (Stage.EMBED,),
    }[order]
