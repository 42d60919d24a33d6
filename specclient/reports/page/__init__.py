"""The report as one page for a browser: figures in, HTML out."""
