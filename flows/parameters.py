"""What parameters of flows may be: checked in the form of the UI, before anything starts."""

from typing import Annotated

from pydantic import Field

Text = Annotated[str, Field(min_length=1)]
TenantName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
AtLeastOne = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Days = Annotated[float, Field(ge=0)]
