package lane_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// script runs commands on one stream. Items are numbered as they are published; i3 is the third one.
type script struct {
	m         *lane.Memory
	items     map[lane.Item]string
	consumers map[string]lane.Consumer[lane.Item]
	held      map[string]lane.Delivery[lane.Item] // a/i3: the last delivery of item 3 on lane a
	requests  lane.Consumer[lane.Request]
	asked     map[string]lane.Delivery[lane.Request]
	pending   map[string]*call[string] // by the command that waits
}

// clauses W1, W3, W5, W6, W7, W8, W9, W10, W11, W13: the scripts in testdata, for reading.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, error %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(*testing.T) { got = play(string(content)) })
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(content), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// play runs the lines that begin with "> " and puts what they answer beneath; comments and empty lines stay.
func play(content string) string {
	s := &script{
		items: map[lane.Item]string{}, consumers: map[string]lane.Consumer[lane.Item]{}, held: map[string]lane.Delivery[lane.Item]{},
		asked: map[string]lane.Delivery[lane.Request]{}, pending: map[string]*call[string]{},
	}
	var out strings.Builder
	for line := range strings.Lines(content) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "> ")
		switch {
		case ok:
			fmt.Fprintf(&out, "> %s\n", command)
			s.run(command, &out)
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			out.WriteString(line)
		}
	}
	for _, c := range s.pending {
		c.cancel()
	}
	synctest.Wait()
	return out.String()
}

func (s *script) run(command string, out *strings.Builder) {
	word, rest, _ := strings.Cut(command, " ")
	args := strings.Fields(rest)
	if word == "cancel" {
		s.pending[rest].cancel()
	} else {
		s.pending[command] = start(func(ctx context.Context) (string, error) { return s.command(ctx, word, args) })
	}
	synctest.Wait()
	waits := false
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(s.pending)), func(c string) bool { return c == command })
	for _, c := range append([]string{command}, others...) {
		call, ok := s.pending[c]
		if !ok {
			continue // cancel has no call of its own
		}
		if !call.returned() {
			waits = waits || c == command
			continue
		}
		delete(s.pending, c)
		answer := call.result
		if call.err != nil {
			answer = call.err.Error()
		}
		if c != command {
			answer = strings.TrimSuffix("now "+c+": "+answer, ": ")
		}
		if answer != "" {
			fmt.Fprintf(out, "  %s\n", answer)
		}
	}
	if waits {
		fmt.Fprintln(out, "  waits")
	}
}

func (s *script) command(ctx context.Context, word string, args []string) (answer string, err error) {
	switch word {
	case "stream":
		return "", s.open(args)
	case "publish":
		it, to := s.item(args)
		return s.items[it], s.m.Publish(ctx, it, to...)
	case "attach":
		s.consumers[args[0]], err = s.m.Lane(args[0])
		return "", err
	case "close":
		if len(args) > 0 {
			return "", s.consumers[args[0]].Close()
		}
		return "", s.m.Close()
	case "receive":
		return s.receive(ctx, args[0])
	case "ack", "nack":
		d, ok := s.held[args[0]]
		switch {
		case !ok:
			return "", errors.New("was not received")
		case word == "ack":
			return "", d.Ack()
		default:
			return "", d.Nack()
		}
	case "ask":
		return "", s.m.Ask(lane.Request{Sink: args[0], Datasets: args[1:]})
	case "requests":
		s.requests, err = s.m.Requests()
		return "", err
	case "serve", "done":
		return s.serve(ctx, word, args)
	case "status":
		return s.status(args)
	}
	return "", errors.New("unknown command")
}

func (s *script) open(args []string) (err error) {
	clear(s.items)
	var sinks []string
	var o lane.Options
	for _, a := range args {
		key, value, option := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		switch {
		case !option:
			sinks = append(sinks, a)
		case key == "items":
			o.Items = n
		case key == "bytes":
			o.Bytes = int64(n)
		case key == "untracked":
			o.Untracked = append(o.Untracked, value)
		}
	}
	s.m, err = lane.NewMemory(sinks, o)
	return err
}

// item makes what the arguments say: at=POSITION, bytes=N, to=SINK, complete=DATASET.
func (s *script) item(args []string) (lane.Item, []string) {
	b := &record.Batch{Changes: 1}
	var it lane.Item = lane.Batch{Batch: b}
	var to []string
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "at":
			b.Position = position(n)
		case "bytes":
			b.Ops = make([]record.Op, n-int((&record.Batch{}).Bytes()))
		case "to":
			to = append(to, value)
		case "complete":
			it = marker(value)
		}
	}
	if _, known := s.items[it]; !known {
		s.items[it] = fmt.Sprintf("i%d", len(s.items)+1)
	}
	return it, to
}

// marker is comparable, unlike the item itself.
func marker(dataset string) lane.Item {
	return lane.Batch{Batch: &record.Batch{Schema: &record.Schema{Dataset: dataset}}}
}

func (s *script) receive(ctx context.Context, sink string) (string, error) {
	d, err := s.consumers[sink].Receive(ctx)
	if err != nil {
		return "", err
	}
	s.held[sink+"/"+s.items[d.Item()]] = d
	return s.items[d.Item()], nil
}

// serve receives a request; done acknowledges it.
func (s *script) serve(ctx context.Context, word string, args []string) (string, error) {
	if word == "done" {
		return "", s.asked[args[0]].Ack()
	}
	d, err := s.requests.Receive(ctx)
	if err != nil {
		return "", err
	}
	s.asked[d.Item().Sink] = d
	return fmt.Sprint(d.Item().Sink, " ", d.Item().Datasets), nil
}

func (s *script) status(sinks []string) (string, error) {
	p, _ := s.m.Watermark()
	parts := []string{"watermark " + p.Position.String()}
	if s.m.Idle() {
		parts = append(parts, "idle")
	}
	for _, n := range sinks {
		st, err := s.m.Stats(n)
		if err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("%s: %d = %d acknowledged + %d in flight + %d queued", n,
			st.Published.Items, st.Acked.Items, st.InFlight.Items, st.Queued.Items))
	}
	return strings.Join(parts, "; "), nil
}
