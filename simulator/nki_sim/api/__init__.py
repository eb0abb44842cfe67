"""The public names: what ``import nki`` resolves to."""
