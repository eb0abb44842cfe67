"""Stepping through a run: the data a viewer asks for, and the viewers that show it."""
