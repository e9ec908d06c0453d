"""The incidents of `reports.incidents`: who looks for them without being asked, and who asks."""
