"""What a release promises to the next one: the public names, and a database that it can migrate."""
