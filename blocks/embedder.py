"""What turns text into vectors."""

from typing import Any

from pydantic import Field

from blocks.part import ConfigurationPart
from penstock.embed.embedder import Embedder, build_embedder
from penstock.settings import EmbeddingBackends, EmbeddingSettings


class TextEmbedder(ConfigurationPart):
    """An embedding backend and its model."""

    _block_type_name = "Penstock Embedder"
    _block_type_slug = "penstock-embedder"
    _description = "The backend that turns text into vectors."

    backend: EmbeddingBackends = Field(
        "wordllama",
        description="wordllama works offline; hash is for tests; module:Name is one of your own",
    )
    model: str | None = Field(None, description="Model of the backend; empty: its own default")

    def overrides(self) -> dict[str, Any]:
        return {"embedding": EmbeddingSettings(backend=self.backend, model=self.model)}

    def get_client(self) -> Embedder:
        return build_embedder(self.backend, self.model)
