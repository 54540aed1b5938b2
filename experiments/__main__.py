"""`python -m experiments` is the `zs-experiment` command."""

from experiments.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
