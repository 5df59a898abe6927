"""CSV to JSON Lines with Python's own modules, values typed: what a tap of Singer's does at best."""

import csv
import json
import sys

with open(sys.argv[1], newline="", encoding="utf-8") as source, open(sys.argv[2], "w", encoding="utf-8") as target:
    rows = csv.reader(source)
    names = next(rows)
    encode = json.JSONEncoder(check_circular=False, ensure_ascii=False, separators=(",", ":")).encode
    for id_, qty, price, amount, name, active, created, note in rows:
        values = int(id_), int(qty), float(price), float(amount), name, active == "true", created, note or None
        target.write(encode(dict(zip(names, values))) + "\n")
