"""specclient serve: the server and its keys."""
