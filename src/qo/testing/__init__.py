"""What users of qo need in their own tests. `qo.testing.conformance` checks a store against the contract."""
