"""For each machine: stories that end in every state, and the events that are tried after each of them."""
