"""Load models: from a checkpoint's folder to an engine that decodes, planned for the memory there is."""
