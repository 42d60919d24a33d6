"""specclient route: explain decisions and simulate policies."""
