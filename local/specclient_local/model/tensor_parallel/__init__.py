"""A target divided among several devices: tensor parallelism by torch.distributed."""
