"""A small round that takes checkpoints: the real machines of both sides, a network that loses connections."""

from __future__ import annotations
