"""The appliance: pre-filter, tables and server put together on one machine."""
