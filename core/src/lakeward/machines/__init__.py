"""Pure state machines: `step(event) -> commands`. No IO, no clock, no threads, no randomness."""
