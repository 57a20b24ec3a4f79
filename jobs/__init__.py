"""Programs to run: `python -m jobs.NAME`."""
