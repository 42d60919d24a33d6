"""specclient config: show, write and check the configuration."""
