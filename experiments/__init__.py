"""The instrument: what each drop position costs, measured."""
