"""A job as every board describes it, whatever it calls the parts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job is, by the board's own name for it, by its address, or both."""

    name: str = ""
    locality: str = ""
    region: str = ""
    country: str = ""

    def __str__(self) -> str:
        parts = (self.locality, self.region, self.country)
        return self.name or ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Salary:
    """A range of pay; either end may be open."""

    least: int | float | None
    most: int | float | None
    currency: str = ""
    unit: str = ""
    """YEAR, MONTH, WEEK, DAY or HOUR; empty when the board does not say."""

    def __str__(self) -> str:
        ends = dict.fromkeys(str(end) for end in (self.least, self.most) if end is not None)
        unit = self.unit and f"/ {self.unit.lower()}"
        return " ".join(filter(None, ("–".join(ends), self.currency, unit)))


@dataclass(frozen=True, slots=True)
class Job:
    """One posting. Nothing in it changes unless the posting does."""

    id: str
    title: str
    url: str
    company: str = ""
    places: tuple[Place, ...] = ()
    is_remote: bool = False
    teams: tuple[str, ...] = ()
    employment_type: str = ""
    date_posted: str = ""
    """`YYYY-MM-DD`."""
    description: str = ""
    """HTML that is safe to put inside a page."""
    salary: Salary | None = None
