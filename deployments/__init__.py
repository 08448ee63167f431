"""What is set up once on a Prefect server: block types, work pools, schedules."""
