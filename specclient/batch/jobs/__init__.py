"""Batch jobs of vendors: lines sent as a file, answered within a day, at the vendor's batch price."""
