"""Clients of other people, by what they send: requests over real HTTP, and the clock turned on."""
