"""For authors of labs: everything that is generated from the solution, and the checks of a lab."""
