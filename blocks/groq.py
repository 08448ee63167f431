"""The language models that extract."""

from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr

from blocks.part import ConfigurationPart
from penstock.llm.groq import build_groq_client
from penstock.settings import ExtractionSettings

if TYPE_CHECKING:
    from groq import Groq


class GroqModels(ConfigurationPart):
    """A primary and a fallback model at Groq, or at any compatible server."""

    _block_type_name = "Penstock Groq Models"
    _block_type_slug = "penstock-groq-models"
    _description = "The model chain that turns text into fields."

    api_key: SecretStr = Field(description="The key of the Groq account")
    primary_model: str = Field("openai/gpt-oss-20b", description="Asked first")
    fallback_model: str = Field(
        "openai/gpt-oss-120b", description="Asked when the first answer is not good enough"
    )
    base_url: str | None = Field(None, description="Another compatible server; empty: Groq")

    def overrides(self) -> dict[str, Any]:
        models = ExtractionSettings(
            primary_model=self.primary_model,
            fallback_model=self.fallback_model,
            base_url=self.base_url,
        )
        return {"groq_api_key": self.api_key, "extraction": models}

    def get_client(self) -> "Groq":
        return build_groq_client(self.api_key.get_secret_value(), self.base_url)
