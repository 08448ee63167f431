"""What the fault scenarios are made of: a scene with real worker processes, and an audit."""
