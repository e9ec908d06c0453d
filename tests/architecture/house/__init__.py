"""What `make house` counts: the size of the package, and what its core carries for each subject.

`numbers.toml` has the map of the subjects, and how far each number may go.
"""

# They register their numbers.
from tests.architecture.house import files as files
from tests.architecture.house import runs as runs
