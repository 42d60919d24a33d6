"""How the bundled pair is made, from the standard library to two checkpoints."""
