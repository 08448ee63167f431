"""Filling the built-in profiles by rules, offline and deterministically."""

from penstock.llm.rules.extractor import RulesExtractor

__all__ = ["RulesExtractor"]
