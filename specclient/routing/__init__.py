"""Which endpoint serves a call: estimates and the policy over them."""
