"""Parts of `jobs.bench_search`."""
