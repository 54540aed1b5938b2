"""`python -m zeroserve` is the `zeroserve` command."""

from zeroserve.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
