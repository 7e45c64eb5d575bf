"""Mutants: the product with one mistake each, for the tests and the simulator to find."""
