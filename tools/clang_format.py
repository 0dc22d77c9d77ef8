"""Run the clang-format of this environment: ``clang_format.py [-i] FILE …``.

Without ``-i`` nothing is written, and a file that is not in form is an error.
"""

import subprocess
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Pass the files on; return clang-format's exit code."""
    program = Path(sys.executable).with_name("clang-format")
    mode = [] if "-i" in arguments else ["--dry-run", "--Werror"]
    code = subprocess.call([program, *mode, *arguments])
    if code and mode:
        print("C++ or CUDA is not in form: run `make format`", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
