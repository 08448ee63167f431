"""What is set up once on a Prefect server: block types, automations, work pools, schedules."""
