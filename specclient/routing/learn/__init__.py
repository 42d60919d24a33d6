"""Learn what each route takes: speed, answer length, failures, quality of estimates."""
