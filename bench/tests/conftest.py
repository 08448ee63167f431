"""The fixtures of the test suite, for the tests of the benches."""

from tests.conftest import *  # noqa: F403 - pytest finds fixtures and hooks by their names
from tests.integration.conftest import home, prefect  # noqa: F401 - fixtures, found by name
