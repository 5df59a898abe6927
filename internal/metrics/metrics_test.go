package metrics_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/metrics"
	"github.com/leatdata/leat/lane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get returns what a scrape says of leat, and whether it says something of the process.
func get(t *testing.T, url string) (ours string, process bool) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close(); http.DefaultClient.CloseIdleConnections() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	var lines []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "leat_") {
			lines = append(lines, line)
		}
		process = process || strings.HasPrefix(line, "process_resident_memory_bytes") || strings.HasPrefix(line, "go_goroutines")
	}
	return strings.Join(lines, ""), process
}

func TestServe(t *testing.T) {
	st := engine.Status{State: engine.Running}
	url, stop, err := metrics.Serve(t.Context(), ":0", "shop", func() engine.Status { return st })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("an address without a host is seen from elsewhere: %s", url)
	}
	got, process := get(t, url)
	if diff := cmp.Diff("leat_state{pipeline=\"shop\",state=\"running\"} 1\n", got); diff != "" || !process {
		t.Errorf("of a run that has not begun (-want +got), process %t:\n%s", process, diff)
	}
	st.Lag = connector.Lag{Bytes: 7, Events: -1, Age: -1, Retained: -1}
	if got, _ = get(t, url); !strings.Contains(got, "leat_source_lag_bytes{pipeline=\"shop\"} 7\n") || strings.Contains(got, "seconds") {
		t.Errorf("what the source does not say is shown:\n%s", got)
	}
	st = busy()
	got, _ = get(t, url)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func busy() engine.Status {
	sink := engine.SinkStatus{
		Name: "lake", Rows: 12, Durable: 11, SetAside: 1, Altered: 4, Retries: 2, Queued: 77, Err: errors.New("down"),
		ByDataset: map[string]int64{"public.orders": 12},
		Held:      lane.Holding{Count: lane.Count{Rows: 5, Bytes: 600}, Oldest: time.UnixMilli(1700000000500)},
	}
	sink.Latencies.Counts[0] = 3     // a microsecond
	sink.Latencies.Counts[16*9] = 4  // 4.2 ms at the most
	sink.Latencies.Counts[511] = 1   // some 35 minutes
	sink.Latencies.Sum = 2000.016003 // seconds
	return engine.Status{
		State: engine.Draining, Lanes: engine.DurableLanes, Roundtrips: map[string]int64{"source": 9},
		Lag:      connector.Lag{Bytes: 100, Age: 1500 * time.Millisecond, Retained: 2000},
		Datasets: []engine.DatasetStatus{{Name: "public.orders", Rows: 13, Bytes: 1000, SetAside: 1, Phase: engine.Live}},
		Sinks:    []engine.SinkStatus{sink},
	}
}

const want = `leat_altered_values_total{pipeline="shop",sink="lake"} 4
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.0005"} 3
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.001"} 3
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.002"} 3
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.005"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.01"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.02"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.05"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.1"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.2"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="0.5"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="1"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="2"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="5"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="10"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="30"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="60"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="300"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="1800"} 7
leat_commit_to_durable_seconds_bucket{pipeline="shop",sink="lake",le="+Inf"} 8
leat_commit_to_durable_seconds_sum{pipeline="shop",sink="lake"} 2000.016003
leat_commit_to_durable_seconds_count{pipeline="shop",sink="lake"} 8
leat_dataset_phase{dataset="public.orders",phase="live",pipeline="shop"} 1
leat_durable_rows_total{pipeline="shop",sink="lake"} 11
leat_lane_held_bytes{pipeline="shop",sink="lake"} 600
leat_lane_held_rows{pipeline="shop",sink="lake"} 5
leat_lane_oldest_timestamp_seconds{pipeline="shop",sink="lake"} 1.7000000005e+09
leat_lane_queued_bytes{pipeline="shop",sink="lake"} 77
leat_read_bytes_total{dataset="public.orders",pipeline="shop"} 1000
leat_read_rows_total{dataset="public.orders",pipeline="shop"} 13
leat_read_set_aside_rows_total{dataset="public.orders",pipeline="shop"} 1
leat_roundtrips_total{pipeline="shop",system="source"} 9
leat_sink_retries_total{pipeline="shop",sink="lake"} 2
leat_sink_set_aside_rows_total{pipeline="shop",sink="lake"} 1
leat_sink_up{pipeline="shop",sink="lake"} 0
leat_source_lag_bytes{pipeline="shop"} 100
leat_source_lag_seconds{pipeline="shop"} 1.5
leat_source_retained_bytes{pipeline="shop"} 2000
leat_state{pipeline="shop",state="draining"} 1
leat_written_rows_total{dataset="public.orders",pipeline="shop",sink="lake"} 12
`

// An address that can't be had is said before anything runs.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "9464", "no such host:1", "127.0.0.1:99999", "192.0.2.1:9464"} {
		if _, _, err := metrics.Serve(t.Context(), address, "shop", nil); err == nil || !strings.HasPrefix(err.Error(), "metrics: ") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// Every metric is on the page that tells of them, and the page tells of no other.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	shown, told := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(want) {
		name, _, _ := strings.Cut(line, "{")
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, end)
		}
		shown[name] = true
	}
	for _, m := range regexp.MustCompile("`(leat_[a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		told[m[1]] = true
	}
	if diff := cmp.Diff(shown, told); diff != "" {
		t.Errorf("what is shown, and what is told of it (-shown +told):\n%s", diff)
	}
}
