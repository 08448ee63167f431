"""What Redis adds beside the database: wake-ups, back-pressure and a mirror of the queues."""
