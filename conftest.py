"""Registers the course's pytest plugin: `--impl`, `--seed`, `--step`, the fixtures `lab` and `rng`."""

pytest_plugins = ["grader.plugin"]
