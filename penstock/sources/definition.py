"""What a person says about a source, on the command line or in a file."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from penstock.crawl.titles import compile_pattern


def _usable_pattern(pattern: str) -> str:
    compile_pattern(pattern)
    return pattern


Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Title = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    AfterValidator(_usable_pattern),
]


class SourceSettings(BaseModel):
    """How a source is listed and processed; kept with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include_titles: tuple[Title, ...] = Field(
        (), description="Only documents whose title has one of these words; * stands for a part"
    )
    exclude_titles: tuple[Title, ...] = Field((), description="None whose title has one of these")
    link_pattern: Line | None = Field(
        None, description="Only pages whose address matches this regular expression"
    )
    profile: Line | None = Field(None, description="Fields to extract; empty: by content")
    force: bool = Field(False, description="Process unchanged documents too, in every run")


class SourceDefinition(SourceSettings):
    """A source as it is written down."""

    name: Annotated[Line, StringConstraints(max_length=200)] = Field(
        description="What it is called: a company, a collection"
    )
    location: Line = Field(description="A folder, a file, a URL, or s3://bucket/prefix")
    kind: Line | None = Field(None, description="What it is; empty: recognised by itself")
    tenant: Line | None = Field(None, description="Whose it is; empty: PENSTOCK_TENANT")

    @property
    def settings(self) -> SourceSettings:
        return SourceSettings(**{name: getattr(self, name) for name in SourceSettings.model_fields})
