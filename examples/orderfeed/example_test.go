package orderfeed_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leatdata/leat/examples/orderfeed"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state/sqlite"
)

// A run brings what the feed has into the ledger; the next one goes on behind it.
func Example() {
	services := startServices(
		`{"number":1,"customer":"Ada","total":19.90,"placed":"2026-03-04T05:06:07Z"}`,
		`{"number":2,"customer":"Grace","total":1000000000.01,"placed":"2026-03-04T06:30:00+01:00","note":"a \"gift\""}`,
	)
	defer services.Close()
	run := func() error {
		src, snk := orderfeed.NewSource(), orderfeed.NewSink()
		src.URL, src.Token = services.URL+"/feed", token
		snk.URL, snk.Token = services.URL+"/ledger", token
		return runOnce(src, snk)
	}
	if err := run(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(services.texts())
	services.feed = append(services.feed, `{"number":3,"customer":"Linus","total":0.5,"placed":"2026-03-05T00:00:00Z"}`)
	if err := run(); err != nil {
		fmt.Println(err)
	}
	fmt.Println("and then", services.orders())
	// Output:
	// {"dataset":"orders","row":{"number":1,"customer":"Ada","total":19.90,"placed":"2026-03-04T05:06:07Z","note":null}}
	// {"dataset":"orders","row":{"number":2,"customer":"Grace","total":1000000000.01,"placed":"2026-03-04T05:30:00Z","note":"a \"gift\""}}
	// and then [1 2 3]
}

var stateFolder = must(os.MkdirTemp("", "orderfeed"))

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// runOnce runs the pipeline orders until its source ends.
func runOnce(src *orderfeed.SourceConfig, snk *orderfeed.SinkConfig) error {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, filepath.Join(stateFolder, "state.db"))
	if err != nil {
		return err
	}
	_, err = engine.Run(ctx, engine.Plan{
		Name:   "orders",
		Source: engine.SourceSpec{Connector: "orderfeed", Config: src},
		Sinks:  []engine.SinkSpec{{Name: "ledger", Connector: "orderfeed", Config: snk}},
	}, engine.Deps{Store: store})
	if closed := store.Close(); err == nil {
		err = closed
	}
	return err
}
