"""Jobs by the million, like those that a busy shop leaves behind."""
