"""For tests of this plugin and of what is built on it: a server that answers what it is told to."""
