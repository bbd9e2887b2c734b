"""Runs the packaged ``xpu-top`` in place of this process."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "xpu-top")
    try:
        os.execv(program, ["xpu-top", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"xpu-top: cannot start {program}: {error.strerror}; reinstall the xpu-top wheel")


if __name__ == "__main__":
    main()
