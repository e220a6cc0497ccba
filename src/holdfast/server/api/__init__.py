"""The resources, one file each."""
