"""Review: what people correct or accept in records, and what needs it."""
