"""What the tests of the Paimon lake share."""
