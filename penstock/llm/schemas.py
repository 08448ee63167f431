"""The fields of the built-in profiles, as they cross the boundary to a model and back."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Confidence = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="How sure you are that the fields above are right and complete, 0 to 1.",
    ),
]


class ProfileFields(BaseModel):
    """Base of the built-in schemas: a field nobody asked for is an error, not a surprise."""

    model_config = ConfigDict(extra="forbid")


class ResumeFields(ProfileFields):
    """What a résumé says about a person's working life."""

    primary_skills: list[str] = Field(
        description="The 8 to 12 strongest technical or professional skills, best first."
    )
    recent_job_titles: list[str] = Field(
        description="The 1 to 3 most recent job titles, newest first."
    )
    years_experience_total: int | float | str | None = Field(
        default=None, description='Total years of work as a number, or a range such as "5-7".'
    )
    certifications: list[str] | None = Field(
        default=None, description="Professional certifications by name, or null."
    )
    industries: list[str] | None = Field(
        default=None, description="Industries the person worked in, or null."
    )
    confidence: Confidence


class JobPostingFields(ProfileFields):
    """What an employer offers and asks for.

    `requirements` is a list: each one is shown, filtered and capped on its own, and a single
    type keeps the schema usable in a model's strict mode.
    """

    title: str | None = Field(default=None, description="The job's title without the company.")
    company: str | None = Field(default=None, description="The hiring company.")
    location: str | None = Field(default=None, description='City and region, or "Remote".')
    employment_type: str | None = Field(
        default=None,
        description="full-time, part-time, contract, temporary, internship or volunteer.",
    )
    salary_min: float | None = Field(default=None, description="Lowest pay as stated.")
    salary_max: float | None = Field(default=None, description="Highest pay as stated.")
    salary_currency: str | None = Field(default=None, description="ISO 4217 code such as EUR.")
    seniority: str | None = Field(
        default=None,
        description="intern, junior, mid, senior, lead, principal, manager, director or executive.",
    )
    description: str | None = Field(default=None, description="What the job is, in a few lines.")
    requirements: list[str] = Field(
        default_factory=list, description="What an applicant must bring, one item each."
    )
    skills: list[str] = Field(default_factory=list, description="Skills asked for, by name.")
    confidence: Confidence


class DocumentFields(ProfileFields):
    """What any document is about."""

    title: str | None = Field(default=None, description="The document's title.")
    authors: list[str] = Field(default_factory=list, description="Names of the authors.")
    date: str | None = Field(
        default=None, description="Date of publication: YYYY, YYYY-MM or YYYY-MM-DD."
    )
    summary: str | None = Field(default=None, description="Two or three sentences.")
    topics: list[str] = Field(default_factory=list, description="Main topics, broadest first.")
    confidence: Confidence
