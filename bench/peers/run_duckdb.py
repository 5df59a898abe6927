"""Runs SQL in DuckDB in one process, in memory.

    run_duckdb.py [--threads N] [--extension FILE] SQL...
"""

import argparse

import duckdb

flags = argparse.ArgumentParser()
flags.add_argument("--threads", type=int)
flags.add_argument("--extension")
flags.add_argument("sql", nargs="+")
given = flags.parse_args()

db = duckdb.connect(config={"threads": given.threads} if given.threads else {})
if given.extension:
    db.execute(f"load '{given.extension}'")
for statement in given.sql:
    db.execute(statement)
