"""One command per file, imported when it is used."""
