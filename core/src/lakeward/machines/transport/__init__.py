"""The wire protocol between coordinator and subtasks: frames, and channels that deliver in order."""
