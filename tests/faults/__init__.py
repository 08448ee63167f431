"""Real processes, real servers, and what happens when they die."""
