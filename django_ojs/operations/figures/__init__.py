"""Figures for operators: totals, history, queue overview. None counts the jobs table."""
