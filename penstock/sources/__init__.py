"""Sources: where documents come from, by name, with settings of their own."""
