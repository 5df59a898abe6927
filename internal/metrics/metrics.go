// Package metrics shows what a run does in the form that Prometheus reads: counts of rows, how far the source and each lane are behind,
// and how long changes take from their commit to each sink. Names of metrics and labels are stable (S30).
package metrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leatdata/leat/internal/engine"
)

// path is where the metrics are.
const path = "/metrics"

// Serve shows the metrics of a run at http://ADDRESS/metrics until it is closed. An address without a host is that of this machine
// alone. It returns the URL that was chosen; the error says why the address can't be listened on.
func Serve(ctx context.Context, address, pipeline string, status func() engine.Status) (url string, stop func(), err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, fmt.Errorf("metrics: the address %q: want HOST:PORT: %w", address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return "", nil, fmt.Errorf("metrics: %w", err)
	}
	reg := prometheus.NewRegistry()
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	reg.MustRegister(newCollector(pipeline, status), collectors.NewGoCollector(), process)
	mux := http.NewServeMux()
	mux.Handle("GET "+path, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(l) // it ends with Close
	}()
	return "http://" + l.Addr().String() + path, func() {
		_ = srv.Close() // nothing is lost with an answer that is cut
		<-ended
	}, nil
}

// collector makes metrics of a status, whenever they are asked for.
type collector struct {
	status func() engine.Status
	read   struct {
		rows, bytes, setAside, phase *prometheus.Desc
	}
	sink struct {
		rows, durable, setAside, altered, retries, queued, heldBytes, heldRows, oldest, up, latency *prometheus.Desc
	}
	source struct {
		bytes, seconds, retained *prometheus.Desc
	}
	state, roundtrips *prometheus.Desc
}

func newCollector(pipeline string, status func() engine.Status) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("leat_"+name, help, labels, prometheus.Labels{"pipeline": pipeline})
	}
	c := &collector{status: status}
	c.state = desc("state", "1 for the state that the run is in.", "state")
	c.roundtrips = desc("roundtrips_total", "Calls to the source and to each sink.", "system")
	c.read.rows = desc("read_rows_total", "Rows and changes read.", "dataset")
	c.read.bytes = desc("read_bytes_total", "Bytes read: of the source where it says, else of memory.", "dataset")
	c.read.setAside = desc("read_set_aside_rows_total", "Rows that could not be read or transformed, and were set aside.", "dataset")
	c.read.phase = desc("dataset_phase", "1 for the phase that a followed dataset is in.", "dataset", "phase")
	c.source.bytes = desc("source_lag_bytes", "Bytes of the source's log that were not read yet.")
	c.source.seconds = desc("source_lag_seconds", "Age of the newest change that was read; 0: nothing waits.")
	c.source.retained = desc("source_retained_bytes", "Bytes of log that the source keeps for this pipeline.")
	c.sink.rows = desc("written_rows_total", "Rows written.", "sink", "dataset")
	c.sink.durable = desc("durable_rows_total", "Rows that are durable in the sink.", "sink")
	c.sink.setAside = desc("sink_set_aside_rows_total", "Rows that the sink could not take, and were set aside.", "sink")
	c.sink.altered = desc("altered_values_total", "Values that a declared policy changed.", "sink")
	c.sink.retries = desc("sink_retries_total", "How often the sink failed and was begun anew.", "sink")
	c.sink.queued = desc("lane_queued_bytes", "Bytes that wait in memory for the sink.", "sink")
	c.sink.heldBytes = desc("lane_held_bytes", "Bytes on disk that the sink's lane holds.", "sink")
	c.sink.heldRows = desc("lane_held_rows", "Rows on disk that the sink's lane holds.", "sink")
	c.sink.oldest = desc("lane_oldest_timestamp_seconds", "When the oldest item that the sink's lane holds was published.", "sink")
	c.sink.up = desc("sink_up", "0 while something is in the way of the sink, else 1.", "sink")
	c.sink.latency = desc("commit_to_durable_seconds", "Time from the commit of a change until it was durable in the sink.", "sink")
	return c
}

// Describe implements prometheus.Collector: which metrics there are depends on what the run does.
func (*collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	st := c.status()
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	gauge(c.state, 1, st.State.String())
	for system, n := range st.Roundtrips {
		count(c.roundtrips, n, system)
	}
	if lag := st.Lag; lag.Known() {
		for d, x := range map[*prometheus.Desc]float64{
			c.source.bytes: float64(lag.Bytes), c.source.seconds: lag.Age.Seconds(), c.source.retained: float64(lag.Retained),
		} {
			if x >= 0 { // else the source does not say
				gauge(d, x)
			}
		}
	}
	for _, d := range st.Datasets {
		count(c.read.rows, d.Rows, d.Name)
		count(c.read.bytes, d.Bytes, d.Name)
		count(c.read.setAside, d.SetAside, d.Name)
		if d.Phase != engine.NoPhase {
			gauge(c.read.phase, 1, d.Name, d.Phase.String())
		}
	}
	for _, s := range st.Sinks {
		for dataset, n := range s.ByDataset {
			count(c.sink.rows, n, s.Name, dataset)
		}
		count(c.sink.durable, s.Durable, s.Name)
		count(c.sink.setAside, s.SetAside, s.Name)
		count(c.sink.altered, s.Altered, s.Name)
		count(c.sink.retries, s.Retries, s.Name)
		gauge(c.sink.queued, float64(s.Queued), s.Name)
		if st.Lanes == engine.DurableLanes {
			gauge(c.sink.heldBytes, float64(s.Held.Bytes), s.Name)
			gauge(c.sink.heldRows, float64(s.Held.Rows), s.Name)
			if !s.Held.Oldest.IsZero() {
				gauge(c.sink.oldest, float64(s.Held.Oldest.UnixMilli())/1000, s.Name)
			}
		}
		up := 1.0
		if s.Err != nil {
			up = 0
		}
		gauge(c.sink.up, up, s.Name)
		if s.Latencies.Count() > 0 {
			out <- c.latency(&s)
		}
	}
}

// bounds are the buckets of the histogram that is shown: the engine's own are finer than anyone wants to keep.
func bounds() []time.Duration {
	return []time.Duration{
		500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
		5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute,
	}
}

// latency makes the histogram of one sink. A bucket of the engine counts for the bounds that hold all of it.
func (c *collector) latency(s *engine.SinkStatus) prometheus.Metric {
	bounds, buckets, total, next := bounds(), map[float64]uint64{}, uint64(0), 0
	for i, n := range s.Latencies.Counts {
		for next < len(bounds) && s.Latencies.Bound(i) > bounds[next] {
			buckets[bounds[next].Seconds()] = total
			next++
		}
		total += uint64(n)
	}
	for ; next < len(bounds); next++ {
		buckets[bounds[next].Seconds()] = total
	}
	return prometheus.MustNewConstHistogram(c.sink.latency, total, s.Latencies.Sum, buckets, s.Name)
}
