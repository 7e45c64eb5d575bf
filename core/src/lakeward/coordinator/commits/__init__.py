"""What reaches the lake: commits, their check, and the deletion of files that no commit names."""
