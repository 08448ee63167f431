"""Filling the built-in profiles by rules, offline and deterministically."""

from penstock.rules.extractor import RulesExtractor

__all__ = ["RulesExtractor"]
