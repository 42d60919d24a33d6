"""Static-shape passes and whole rounds, recorded as CUDA graphs."""
