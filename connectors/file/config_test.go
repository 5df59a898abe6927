package file_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
)

// clause S31.
func TestURLs(t *testing.T) {
	reg := &connector.Registry{}
	if err := reg.Register(file.Definition()); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string][3]string{
		"orders.csv":                       {"orders.csv", "", ""},
		"csv:orders":                       {"orders", "csv", ""},
		"csv://data/orders.txt":            {"data/orders.txt", "csv", ""},
		"file:///tmp/a%20b.csv":            {"/tmp/a b.csv", "", ""},
		"file:/tmp/a%20b.csv":              {"/tmp/a%20b.csv", "", ""},
		"file://localhost/tmp/x.csv":       {"/tmp/x.csv", "", ""},
		"CSV:-":                            {"-", "csv", ""},
		"ndjson:x":                         {"x", "jsonl", ""},
		"data/*.csv.gz?delimiter=;":        {"data/*.csv.gz", "", ";"},
		"x.csv?delimiter=%7C&header=false": {"x.csv", "", "|"},
		"x.tab?delimiter=tab":              {"x.tab", "", "tab"},
		"out/?format=parquet":              {"out/", "parquet", ""},
		"file:out/?format=parquet":         {"out/", "parquet", ""},
		`C:\data\x.csv`:                    {`C:\data\x.csv`, "", ""},
	} {
		cfg := file.NewSource("")
		if err := cfg.SetURL(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if diff := cmp.Diff(want, [3]string{cfg.Path, cfg.Format, cfg.Delimiter}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
		if _, err := reg.Resolve(raw); err != nil && !strings.HasPrefix(raw, "out/") && !strings.HasPrefix(raw, `C:`) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	cfg := file.NewSource("")
	if err := cfg.SetURL("x.csv?types=a:int64,b:decimal(12,2)&null=,NA&max_line=5"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "int64", "b": "decimal(12,2)"}, cfg.Types); diff != "" || cfg.MaxLine != 5 || len(cfg.Null) != 2 {
		t.Errorf("%+v %s", cfg, diff)
	}
	for raw, want := range map[string]string{
		"x.csv?delimeter=;": `did you mean "delimiter"`, "x.csv?a=%zz": "reading option", "x.csv?header=1&header=0": "twice", "csv:x?format=jsonl": "leave one", "file:///%zz": "file:///",
		"x.csv?ragged=maybe": "none of",
	} {
		err := file.NewSource("").SetURL(raw)
		if code(t, err) != "file.config" || !strings.Contains(err.Error()+connector.HintOf(err), want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// clause S15: what a configuration promises, and what is refused before anything is opened.
func TestContracts(t *testing.T) {
	replace, either := []connector.WriteMode{connector.Replace}, []connector.WriteMode{connector.Replace, connector.Append}
	instead := func(where string) string { return "say log=true, and a folder keeps every change: file:" + where }
	log := connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append}, Input: connector.Changelog, Atomicity: connector.TwoPhaseCommit, Durable: true,
		Keyless: true, Every: 10 * time.Second, Bytes: 128 << 20,
	}
	often := log
	often.Every, often.Bytes = time.Second, 1000
	for raw, want := range map[string]connector.SinkContract{
		"x.csv":                 {Modes: replace, Atomicity: connector.Whole, Durable: true, ForChanges: instead("x/?log=true")},
		"out/?format=csv":       {Modes: either, Atomicity: connector.Whole, Durable: true, ForChanges: instead("out/?log=true")},
		"file:a/out?format=csv": {Modes: either, Atomicity: connector.Whole, Durable: true, ForChanges: instead("a/out/?log=true")},
		"parquet:out":           {Modes: replace, Atomicity: connector.Whole, Durable: true, ForChanges: instead("out/?log=true&format=parquet")},
		"jsonl:-":               {Modes: []connector.WriteMode{connector.Append}},

		"out?log=true": log, "file:///var/out/?log=true&format=debezium": log, "parquet:out?log=true": log,
		"out.jsonl?log=true&every=1s&file_bytes=1000": often,
	} {
		cfg := file.NewSink("")
		if err := cfg.SetURL(raw); err != nil {
			t.Fatal(err)
		}
		got, err := cfg.Contract()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", raw, err, diff)
		}
	}
	for raw, replay := range map[string]connector.Replay{"x.csv": connector.Deterministic, "csv:-": connector.NoReplay} {
		cfg := file.NewSource("")
		if err := cfg.SetURL(raw); err != nil {
			t.Fatal(err)
		}
		if got, err := cfg.Contract(); err != nil || got.Replay != replay || !got.Bounded {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	for _, raw := range []string{
		"", "-", "csv:-?infer=all", "parquet:-", "x.csv?only=a", "x.csv?datasets=per_file&dataset=a", "x.csv?names=a,b", "x.csv?types=a:int65", "x.csv?encoding=no", "x.csv?delimiter=%0A",
		"x.csv?quote=ab",
	} {
		cfg := file.NewSource("")
		err := cfg.SetURL(raw)
		if err == nil {
			_, err = cfg.Contract()
		}
		if err == nil || connector.ClassOf(err) != connector.ClassConfig {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range []string{"?log=true", "jsonl:-?log=true", "csv:out?log=true", "x.arrow?log=true", "out?log=true&every=-1s", "out?log=true&file_bytes=0", "out/?format=debezium"} {
		cfg := file.NewSink("")
		err := cfg.SetURL(raw)
		if err == nil {
			_, err = cfg.Contract()
		}
		if code(t, err) != "file.config" {
			t.Errorf("%s: %v", raw, err)
		}
		if _, err := cfg.Open(connectortest.Env(t)); connector.ClassOf(err) != connector.ClassConfig {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestOptionsAreDocumented(t *testing.T) {
	for _, cfg := range []any{file.NewSource(""), file.NewSink("")} {
		for _, o := range connector.Options(cfg) {
			if o.Doc == "" {
				t.Errorf("option %s has no documentation", o.Name)
			}
		}
	}
}
