"""The suite of real engines: what is checked, how they are installed and started, and the page of results."""
