"""Traces and metrics by OpenTelemetry."""
