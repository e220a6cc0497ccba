"""The console: the pages of people, in `static/`. They are files that know nothing; all facts come from the API."""
