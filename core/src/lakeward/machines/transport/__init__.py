"""What crosses the wire between coordinator and subtasks: frames, and channels that deliver in order."""
