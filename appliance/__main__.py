"""`python -m appliance` is the `zs-appliance` command."""

from appliance.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
