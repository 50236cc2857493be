"""Steps that help EM along without changing what it maximises."""
