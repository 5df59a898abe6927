package file

import (
	"path"
	"slices"
	"strings"
)

// Formats by name.
const (
	formatCSV     = "csv"
	formatJSONL   = "jsonl"
	formatParquet = "parquet"
	formatArrow   = "arrow"

	formatDebezium = "debezium" // of a log only
)

// Compressions by name.
const (
	compressAuto = "auto"
	compressNone = "none"
	compressGzip = "gzip"
	compressZstd = "zstd"
)

// ending is what a file's name says about its content.
type ending struct {
	text, format, delimiter string
	stream                  bool // Arrow's stream form
}

func endings() []ending {
	return []ending{
		{text: ".csv", format: formatCSV},
		{text: ".tsv", format: formatCSV, delimiter: "\t"},
		{text: ".tab", format: formatCSV, delimiter: "\t"},
		{text: ".psv", format: formatCSV, delimiter: "|"},
		{text: ".jsonl", format: formatJSONL},
		{text: ".ndjson", format: formatJSONL},
		{text: ".json", format: formatJSONL},
		{text: ".parquet", format: formatParquet},
		{text: ".pq", format: formatParquet},
		{text: ".arrow", format: formatArrow},
		{text: ".feather", format: formatArrow},
		{text: ".ipc", format: formatArrow},
		{text: ".arrows", format: formatArrow, stream: true},
	}
}

// compressed are the endings of compressed files.
func compressed() map[string]string {
	return map[string]string{".gz": compressGzip, ".zst": compressZstd}
}

// extensions lists all endings that select the connector.
func extensions() []string {
	var out []string
	for _, e := range endings() {
		out = append(out, e.text)
		if e.format == formatCSV || e.format == formatJSONL {
			out = append(out, e.text+".gz", e.text+".zst")
		}
	}
	return out
}

// schemes are the URL schemes of the connector, with the format that they mean; file means none.
func schemes() map[string]string {
	return map[string]string{
		"file": "", "csv": formatCSV, "jsonl": formatJSONL, "ndjson": formatJSONL, "parquet": formatParquet, "arrow": formatArrow,
	}
}

// named takes a file name apart: its stem, what its ending says, and how it is compressed.
func named(name string) (stem string, e ending, compression string) {
	base := path.Base(strings.ReplaceAll(name, `\`, "/"))
	lower := strings.ToLower(base)
	compression = compressNone
	for text, c := range compressed() {
		if strings.HasSuffix(lower, text) {
			compression = c
			base, lower = base[:len(base)-len(text)], lower[:len(lower)-len(text)]
		}
	}
	all := endings()
	i := slices.IndexFunc(all, func(e ending) bool { return strings.HasSuffix(lower, e.text) })
	if i < 0 {
		return base, ending{}, compression
	}
	return base[:len(base)-len(all[i].text)], all[i], compression
}

// defaultEnding is the ending of the files that a folder gets.
func defaultEnding(format, compression string) string {
	if format == formatCSV || format == formatJSONL {
		for text, c := range compressed() {
			if c == compression {
				return "." + format + text
			}
		}
	}
	return "." + format
}
