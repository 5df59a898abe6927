"""Moves rows with dlt.

    copy_dlt.py STATE csv|parquet|postgres FROM jsonl|parquet|duckdb|postgres TO

FROM is a file, or the URL of a database and, behind a blank, the name of a table. Rows come as batches of Arrow, dlt's fastest way. The table
is `t` in the data set `loaded`.
"""

import sys

import dlt
import pyarrow.csv
import pyarrow.parquet


def url(text):
    return text.replace("postgres://", "postgresql+psycopg2://", 1)


def batches(kind, where):
    if kind == "csv":
        # An empty text without quotes is none.
        options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
        with pyarrow.csv.open_csv(where, convert_options=options) as reader:
            yield from reader
    else:
        yield from pyarrow.parquet.ParquetFile(where).iter_batches()


def rows(kind, where):
    if kind != "postgres":
        return dlt.resource(batches(kind, where), name="t")
    from dlt.sources.sql_database import sql_table

    server, table = where.split(" ")
    schema, table = table.split(".")
    found = sql_table(credentials=url(server), schema=schema, table=table, backend="connectorx", chunk_size=50_000,
                      reflection_level="full_with_precision")
    return found.with_name("t")


def target(kind, where):
    if kind == "duckdb":
        return dlt.destinations.duckdb(where), {}
    if kind == "postgres":
        return dlt.destinations.postgres(where.replace("postgres://", "postgresql://", 1)), {"loader_file_format": "csv"}
    return dlt.destinations.filesystem(bucket_url="file://" + where), {"loader_file_format": kind}


state, from_kind, from_where, to_kind, to_where = sys.argv[1:]
destination, more = target(to_kind, to_where)
pipeline = dlt.pipeline("bench", destination=destination, dataset_name="loaded", pipelines_dir=state)
pipeline.run(rows(from_kind, from_where), write_disposition="replace", **more).raise_on_failed_jobs()
