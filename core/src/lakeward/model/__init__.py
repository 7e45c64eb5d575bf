"""Values only: what flows between the rooms. Frozen, slotted, no behaviour beyond their own text form."""
