"""Filling the built-in profiles by rules, offline and deterministically."""

from penstock.llm.rules.extractor import RulesExtractor
from penstock.llm.rules.isolated import IsolatedRules

__all__ = ["IsolatedRules", "RulesExtractor"]
