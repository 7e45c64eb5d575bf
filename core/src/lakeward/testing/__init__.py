"""Shipped to plugin authors: conformance suites, a fake clock, the simulator."""
