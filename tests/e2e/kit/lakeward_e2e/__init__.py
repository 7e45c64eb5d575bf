"""What the end-to-end tests are made of: a world with a store, a warehouse and real service processes."""
