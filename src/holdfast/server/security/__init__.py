"""Who may do what: hosts, origins, tokens, sessions, users and roles, headers."""
