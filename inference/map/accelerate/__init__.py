"""Steps that speed up EM without changing its objective: changes of basis, and quasi-Newton steps."""
