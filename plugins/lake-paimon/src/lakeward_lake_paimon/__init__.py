"""The Paimon lake of Lakeward: its own writer and its own commit."""
