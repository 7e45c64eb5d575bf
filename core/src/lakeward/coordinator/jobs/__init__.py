"""The round's Spark job: its server, its task attempts and their messages."""
