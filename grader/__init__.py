"""The harness of the course: runs a lab's tests on any implementation, grades classes, checks the labs."""

__version__ = "0.1.0"
