"""Web pages: their main content, or all of their visible text."""
