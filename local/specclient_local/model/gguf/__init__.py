"""GGUF files, the format of llama.cpp: header, configuration, tensors, tokenizer."""
