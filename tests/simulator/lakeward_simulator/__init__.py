"""The simulator: the real service, machines and subtasks against a hostile world, in virtual time, from a seed."""
