"""Commands that look after a service: `doctor`, `plan`, `verify` and `plugins new`."""
