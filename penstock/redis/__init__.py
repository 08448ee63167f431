"""What Redis adds: wake-ups, back-pressure, a mirror of the queues and a shared rate limit."""
