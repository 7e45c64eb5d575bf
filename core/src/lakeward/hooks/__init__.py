"""The plugin contracts: lease hooks (pluggy), source and lake plugins (entry points), and the typed manager."""
