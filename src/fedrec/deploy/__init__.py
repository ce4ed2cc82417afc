"""A real federation: sites that hold many users each, and a server, on separate machines (extra ``fedrec[deploy]``)."""
