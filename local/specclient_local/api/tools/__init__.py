"""Tool calls: the grammar that constrains them and the parser that reads them."""
