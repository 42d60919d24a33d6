"""specclient cost: reports, budgets, estimates and prices."""
