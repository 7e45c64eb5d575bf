"""Commits to the lake, the check before them, and the deletion of files that no commit references."""
