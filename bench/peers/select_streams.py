"""Selects all streams of a catalog of Singer's, from standard input to standard output, as `meltano select` does."""

import json
import sys

catalog = json.load(sys.stdin)
for stream in catalog["streams"]:
    for of in stream["metadata"]:
        if not of["breadcrumb"]:
            of["metadata"]["selected"] = True
    stream["replication_method"] = "FULL_TABLE"
json.dump(catalog, sys.stdout)
