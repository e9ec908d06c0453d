"""Who runs the command, for the audit trail."""

import os
import pwd


def operator(command: str = "ojs") -> str:
    """Return the operating system's user; after sudo also the user who called it."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # A container may run as a number without a name.
        name = f"uid {uid}"
    caller = os.environ.get("SUDO_USER")
    called = f", sudo by {caller[:64]}" if caller and caller != name else ""
    return f"{name}{called} (manage.py {command})"
