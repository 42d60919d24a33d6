"""``specclient cache``: the answers that the response cache keeps."""
