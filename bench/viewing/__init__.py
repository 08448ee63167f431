"""What looking at a large run costs: the page, a tab that stays open, many who look."""
