"""What the tests on a real cluster need: a writer that is not ours, and a world for the conformance suite."""
