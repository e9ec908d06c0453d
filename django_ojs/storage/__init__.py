"""Where jobs are kept: one writer of state, and what differs between databases behind `dialects`.
"""
