"""Notebook extension."""
