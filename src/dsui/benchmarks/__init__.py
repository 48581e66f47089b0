"""Benchmarks that run on the user's own machine, for `dsui bench`; those in benchmarks/ print the committed tables."""
