"""`python -m grader` is the same as `grader`."""

from grader.cli import main

main()
