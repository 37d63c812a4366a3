"""One module for each version, oldest first."""
