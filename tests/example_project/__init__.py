"""Tests of the example shop and of its ledger."""
