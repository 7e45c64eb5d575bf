"""Traces and metrics by OpenTelemetry: the only importer of opentelemetry, an extra."""
