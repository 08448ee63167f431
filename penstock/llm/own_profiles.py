"""Profiles that users write: found in their modules, checked, and made known."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from threading import Lock
from types import ModuleType

from pydantic import BaseModel

from penstock.errors import ConfigurationError, UsageError
from penstock.llm.profiles import Profile, register_profile
from penstock.llm.strict_schema import strict_schema
from penstock.plugins import load_module, module_names

ENTRY_POINTS = "penstock.profiles"
SETTING = "EXTRACTION_PROFILES"
# What a model's server takes as the name of a schema.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_loading = Lock()


def load_own_profiles(named: Sequence[str] = ()) -> tuple[str, ...]:
    """Make known every `Profile` that stands at the top level of these modules or `.py` files.

    Modules of the entry point group come first. Each is loaded once in a process; a faulty one
    raises ConfigurationError, and is tried again the next time.
    """
    modules = module_names(entry_points(group=ENTRY_POINTS), named)
    with _loading:
        return tuple(name for module in dict.fromkeys(modules) for name in _load(module))


@cache
def _load(module: str) -> tuple[str, ...]:
    found = _profiles_in(load_module(module, holds="profiles", setting=SETTING))
    if not found:
        raise ConfigurationError(
            f"{module} holds no profile: assign one at its top level, as in "
            f"INVOICE = Profile(…), or take it out of {SETTING}"
        )
    for complaint in (one for profile in found for one in _complaints(profile)):
        raise ConfigurationError(f"{module}: {complaint}")
    try:
        for profile in found:
            register_profile(profile)
    except UsageError as error:
        raise ConfigurationError(f"{module}: {error}") from error
    return tuple(profile.name for profile in found)


def _profiles_in(module: ModuleType) -> list[Profile]:
    values = {id(value): value for value in vars(module).values() if isinstance(value, Profile)}
    return list(values.values())


def _complaints(profile: Profile) -> Iterator[str]:
    """What is wrong with a profile and how to mend it."""
    start = f"the profile {profile.name!r}"
    if not isinstance(profile.name, str) or not _NAME.fullmatch(profile.name):
        yield f"{start} needs another name: up to 64 letters, digits, hyphens and underscores"
    if not isinstance(profile.prompt, str) or not profile.prompt.strip():
        yield f"{start} has no prompt: say in a sentence what is read and recorded"
    if not (isinstance(profile.schema, type) and issubclass(profile.schema, BaseModel)):
        yield f"{start} needs a pydantic model as its schema: a class derived from BaseModel"
    else:
        yield from (f"{start} {complaint}" for complaint in _schema_complaints(profile))


def _schema_complaints(profile: Profile) -> Iterator[str]:
    fields = profile.schema.model_fields
    if "confidence" not in fields:
        yield (
            "has no field `confidence`, by which answers are judged: add `confidence: Confidence` "
            "to its schema, from penstock.llm.schemas"
        )
    for option in ("required", "salient", "classes"):
        names = getattr(profile, option)
        if not isinstance(names, tuple):
            yield f"needs a tuple as {option}: with one name in it, write ('name',)"
        elif option != "classes" and (unknown := sorted(set(names) - fields.keys())):
            yield f"names fields in {option} that its schema lacks ({', '.join(unknown)}): add them"
    try:
        strict_schema(profile.schema)
    except Exception as error:
        yield f"has a schema that cannot be told to a model ({error}): use types that JSON knows"
