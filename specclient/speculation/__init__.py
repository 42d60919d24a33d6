"""What speculation did, told in one vocabulary."""
