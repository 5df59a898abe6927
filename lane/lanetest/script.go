package lanetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

// script runs commands on one stream. Items are numbered as they are published; i3 is the third one.
type script struct {
	kit       Kit
	t         TB
	m         lane.Stream
	finish    func() // nil: nothing was opened yet
	spec      lane.Spec
	items     int // published so far
	consumers map[string]lane.Consumer[lane.Item]
	held      map[string]lane.Delivery[lane.Item] // a/i3: the last delivery of item 3 on lane a
	requests  lane.Consumer[lane.Request]
	asked     map[string]lane.Delivery[lane.Request]
	pending   map[string]*call[string] // by the command that waits
}

// Scripts plays the scripts that the patterns name, and compares what the stream answers. With update they are rewritten.
//
// clauses W1, W3, W5, W6, W7, W8, W9, W10, W11, W13, W14: for reading.
func Scripts(t *testing.T, k Kit, update bool, patterns ...string) {
	t.Helper()
	var files []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d scripts, error %v", p, len(found), err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, k, string(content)) })
			if update {
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
func play(t TB, k Kit, content string) string {
	s := &script{
		kit: k, t: t, finish: func() {},
		consumers: map[string]lane.Consumer[lane.Item]{}, held: map[string]lane.Delivery[lane.Item]{},
		asked: map[string]lane.Delivery[lane.Request]{}, pending: map[string]*call[string]{},
	}
	defer func() { s.finish() }()
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
	switch word {
	case "cancel":
		s.pending[rest].cancel()
	case "wait":
		time.Sleep(time.Second)
	default:
		s.pending[command] = start(func(ctx context.Context) (string, error) { return s.command(ctx, word, args) })
	}
	synctest.Wait()
	waits := false
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(s.pending)), func(c string) bool { return c == command })
	for _, c := range append([]string{command}, others...) {
		call, ok := s.pending[c]
		if !ok {
			continue // cancel and wait have no call of its own
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
		s.open(args)
		return "", nil
	case "publish":
		it, to := itemOf(args)
		s.items++
		it.Size = int64(s.items)
		return nameOf(it), s.m.Publish(ctx, it, to...)
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
	case "crash", "release", "reattach", "covered", "lanes":
		return s.durable(word, args)
	}
	return "", errors.New("unknown command")
}

func (s *script) open(args []string) {
	s.finish()
	s.items, s.spec = 0, lane.Spec{Pipeline: "p", Run: "r"}
	s.settings(args)
	s.m, s.finish = s.kit.Open(s.t, s.spec)
}

// settings reads the names of sinks, and items=N, bytes=N, untracked=SINK, anew=SINK, run=ID, quota=BYTES, age=DURATION, detach=true.
func (s *script) settings(args []string) {
	var sinks []string
	for _, a := range args {
		key, value, option := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		switch {
		case !option:
			sinks = append(sinks, a)
		case key == "items":
			s.spec.Items = n
		case key == "bytes":
			s.spec.Bytes = int64(n)
		case key == "untracked":
			s.spec.Untracked = append(s.spec.Untracked, value)
		case key == "anew":
			s.spec.Anew = append(s.spec.Anew, value)
		case key == "run":
			s.spec.Run = value
		case key == "quota":
			s.spec.Quota.Bytes = int64(n)
		case key == "age":
			s.spec.Quota.Age, _ = time.ParseDuration(value)
		case key == "detach":
			s.spec.Quota.Detach = value == "true"
		}
	}
	if len(sinks) > 0 {
		s.spec.Sinks = sinks
	}
}

// durable are the commands of a durable stream.
func (s *script) durable(word string, args []string) (string, error) {
	if word == "crash" || word == "release" {
		s.settings(args)
		s.m = s.kit.Reopen(s.t, s.m, s.spec, word == "crash")
		s.spec.Anew = nil
		clear(s.consumers)
		clear(s.held)
		return "", nil
	}
	d, ok := s.m.(lane.Durable)
	if !ok {
		return "", errors.New("the stream is not durable")
	}
	switch word {
	case "reattach":
		return "", d.Attach(args[0])
	case "covered":
		n, _ := strconv.ParseUint(args[1], 10, 64)
		ok, err := d.Covered(args[0], n)
		return strconv.FormatBool(ok), err
	}
	at, _ := d.Stored()
	parts := []string{"stored " + at.Position.String()}
	for _, n := range args {
		h, err := d.Holds(n)
		if err != nil {
			return "", err
		}
		found, err := d.Found(n)
		if err != nil {
			return "", err
		}
		how := []string{"created", "kept", "detached"}[found]
		text := fmt.Sprintf("%s: %s, %d items behind %d", n, how, h.Items, h.Acked)
		if h.Fresh {
			text += ", fresh"
		}
		if h.Detached {
			text += ", let go"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; "), nil
}

// item makes what the arguments say: at=POSITION, bytes=N, to=SINK, complete=DATASET.
func itemOf(args []string) (lane.Batch, []string) {
	b := &record.Batch{Changes: 1}
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
			b.Schema = &record.Schema{Dataset: value} // it stands for the mark
		}
	}
	return lane.Batch{Batch: b}, to
}

// nameOf tells items apart by a field that lanes don't look at.
func nameOf(it lane.Item) string {
	b, ok := it.(lane.Batch)
	if !ok {
		return fmt.Sprint(it)
	}
	return fmt.Sprintf("i%d", b.Size)
}

func (s *script) receive(ctx context.Context, sink string) (string, error) {
	d, err := s.consumers[sink].Receive(ctx)
	if err != nil {
		return "", err
	}
	s.held[sink+"/"+nameOf(d.Item())] = d
	return nameOf(d.Item()), nil
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
