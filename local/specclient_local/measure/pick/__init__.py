"""Choose among draft candidates by measuring them."""
