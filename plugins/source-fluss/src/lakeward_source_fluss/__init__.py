"""Apache Fluss as a source of Lakeward. Importing this package imports nothing; `source.plugin` is the way in.

Rooms: `wire` (bytes and messages, pure), `rpc` (connections), `formats` (record formats), `source` (the ports).
"""
