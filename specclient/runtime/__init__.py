"""What every room stands on: forks, event loops, folders, logs."""
