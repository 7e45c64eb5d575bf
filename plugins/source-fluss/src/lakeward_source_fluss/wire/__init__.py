"""Fluss on the wire: frames, protobuf messages, api keys and server errors. Pure: no clock, no socket."""
