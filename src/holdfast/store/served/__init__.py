"""A store that is behind a server (`holdfast serve`): it is looked at through the server's API."""
