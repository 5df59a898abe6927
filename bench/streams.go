package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A stream job makes changes once. Each of its runs follows the same ones: it gets a copy of the slot that was there before they were
// made, and
// all else as it was then.
const (
	baseSlot    = "bench_base"
	publication = "bench_changes"
	followed    = "public.changes"
)

// streamJob is a job that follows changes.
type streamJob struct {
	job

	base     int64 // rows of the table before the changes, at full scale; those are copied before
	make     func(base, n int64) []string
	said     string // of the changes, in words
	variants []follower
	recv     bool // pg_recvlogical is beside it
}

// follower is one way of leat's to follow.
type follower struct {
	name, id string
	// sinks has a line for each sink. DIR is a folder of its own, INTO the URL of a database of its own, TOPICS the beginning of names of
	// topics of its own, and BROKERS where those are.
	sinks    string
	settings string // see contender
	more     string // a line of the pipeline file
	socket   bool
	verify   func(ctx context.Context, e jobEnv, f follower) error
}

// dir is where a follower's sinks write.
func (f follower) dir(e jobEnv) string { return filepath.Join(e.dir, f.id+".out") }

// into is the database that is its own.
func (f follower) into(e jobEnv) string { return database(e.into, intoDB+"_"+f.id) }

func (f follower) slot() string { return "bench_" + f.id }

func (f follower) pipeline(e jobEnv) pipeline {
	url := e.postgres
	if f.socket {
		url = e.socket
	}
	own := strings.NewReplacer("DIR", f.dir(e), "INTO", f.into(e), "TOPICS", f.topics(), "BROKERS", e.kafka)
	return pipeline{e, f.id, []string{
		f.more, "source: {postgres: {url: '" + url + "', tables: [" + followed + "], follow: true, slot: " + f.slot() + "}}",
		"sinks:", own.Replace(f.sinks),
	}}
}

// missing says why a follower can't run here; empty: it can.
func (f follower) missing(e jobEnv) string {
	switch {
	case f.socket && e.socket == "":
		return noSocket
	case f.needsKafka() && e.kafka == "":
		return "LEAT_TEST_KAFKA is not set"
	}
	return ""
}

const noSocket = "the folder of the server's unix socket is not known"

// start lets a follower copy what is there, so that only changes are left, and keeps what it needs to begin there again.
func (f follower) start(ctx context.Context, e jobEnv) error {
	p := f.pipeline(e)
	if err := errors.Join(p.save(), os.MkdirAll(f.dir(e), 0o700)); err != nil {
		return err
	}
	if strings.Contains(f.sinks, "INTO") {
		if err := execute(ctx, e.into, "create database "+intoDB+"_"+f.id); err != nil {
			return err
		}
	}
	if f.needsKafka() {
		if err := dropTopics(ctx, e.kafka, f.topics()); err != nil {
			return err
		}
	}
	if err := run(ctx, p.run()+" --once --restart"); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	err := execute(ctx, e.postgres, "select pg_copy_logical_replication_slot('"+f.slot()+"', '"+f.slot()+"_base')")
	err = errors.Join(err, run(ctx, fmt.Sprintf("cp -a %[1]s %[1]s.base && cp -a %[2]s %[2]s.base", p.state(), f.dir(e))))
	if strings.Contains(f.sinks, "INTO") {
		err = errors.Join(err, execute(ctx, e.into, fmt.Sprintf("create database %[1]s_base template %[1]s", intoDB+"_"+f.id)))
	}
	if f.needsKafka() {
		err = errors.Join(err, keepTopics(ctx, e.kafka, f.topics(), f.topicsFile(e)))
	}
	return err
}

// reset is the command that makes all as it was behind start.
func (f follower) reset(e jobEnv) string {
	p := f.pipeline(e)
	commands := []string{
		psql(e.postgres, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '"+f.slot()+"'",
			"select pg_copy_logical_replication_slot('"+f.slot()+"_base', '"+f.slot()+"')") + " > /dev/null",
		fmt.Sprintf("rm -rf %[1]s %[2]s && cp -a %[1]s.base %[1]s && cp -a %[2]s.base %[2]s", p.state(), f.dir(e)),
	}
	if strings.Contains(f.sinks, "INTO") {
		commands = append(commands, renewDatabase(e, f.id))
	}
	if f.needsKafka() {
		commands = append(commands, fmt.Sprintf("%s topics -brokers %s -prefix %s -kept %s", e.self, e.kafka, f.topics(), f.topicsFile(e)))
	}
	return strings.Join(append(commands, psql(e.postgres, lastChange)), " && ")
}

// lastChange is made before each run, so that the log ends with a change: where it ends with anything else, only the server's next sign of
// life says that there is nothing more, up to a second later.
const lastChange = "insert into " + followed + " select least(min(id), 0) - 1, 0, 0, 0, 'the last change', now() from " + followed

// changesMade is how many changes there are by now.
func changesMade(ctx context.Context, e jobEnv) (int64, error) {
	last, err := query(ctx, e.postgres, "select count(*) from "+followed+" where id < 0")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(last[0], 10, 64)
	return e.rows + n, err
}

// renewDatabase is the command that makes a database of the target's server what its template is.
func renewDatabase(e jobEnv, id string) string {
	name := intoDB + "_" + id
	return psql(database(e.into, intoDB), "drop database if exists "+name+" with (force)", "create database "+name+" template "+
		""+name+"_base", "checkpoint")
}

func (f follower) contender(e jobEnv) contender {
	p := f.pipeline(e)
	summary := filepath.Join(e.dir, f.id+".json")
	return contender{
		name: f.name, reset: f.reset(e), command: p.run() + " --once --json > " + summary, output: f.dir(e), skip: f.missing(e),
		settings: f.settings,
		complete: func(ctx context.Context) error {
			made, err := changesMade(ctx, e)
			if err != nil {
				return err
			}
			return sawAll(summary, made)
		},
		verify: func(ctx context.Context, _ string) error { return f.verify(ctx, e, f) },
	}
}

// sawAll says whether a run that ended counted as many changes as were made.
func sawAll(summary string, changes int64) error {
	text, err := os.ReadFile(summary)
	if err != nil {
		return err
	}
	var said struct {
		State   string `json:"state"`
		Changes int64  `json:"changes"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return err
	}
	if said.State != "done" || said.Changes != changes {
		return fmt.Errorf("%d changes were made; the run says: %s", changes, text)
	}
	return nil
}

// finish makes the job complete.
func (s streamJob) finish() job {
	j := s.job
	j.servers = true
	j.prepare = s.prepare
	j.contenders = func(e jobEnv) []contender {
		var cs []contender
		if s.recv {
			cs = append(cs, receiver(e, "unix socket", e.socket, "bench_recv_unix"), receiver(e, "TCP", e.postgres, "bench_recv_tcp"))
		}
		for _, f := range s.variants {
			cs = append(cs, f.contender(e))
		}
		return cs
	}
	j.measure = measureSender
	if slices.ContainsFunc(s.variants, follower.needsKafka) {
		j.drop = func(ctx context.Context, e jobEnv) error {
			if e.kafka == "" {
				return nil
			}
			return dropTopics(ctx, e.kafka, topicPrefix)
		}
	}
	return j
}

func (s streamJob) prepare(ctx context.Context, e *jobEnv) (string, error) {
	e.source, e.slot, e.publication, e.target = followed, baseSlot, publication, followed
	base := max(1000, s.base*e.rows/s.rows)
	if s.base == 0 {
		base = 0
	}
	err := execute(ctx, e.postgres, "create table "+followed+" ("+definition(narrow())+", primary key (id))",
		"insert into "+followed+" "+values(narrow(), 1, base), "vacuum (analyze) "+followed,
		"create publication "+publication+" for table "+followed,
		"select pg_create_logical_replication_slot('"+baseSlot+"', 'pgoutput')")
	if err != nil {
		return "", err
	}
	for _, f := range s.variants {
		if f.missing(*e) != "" {
			continue
		}
		if err := f.start(ctx, *e); err != nil {
			return "", err
		}
	}
	if err := prepareOthers(ctx, e); err != nil {
		return "", err
	}
	if err := execute(ctx, e.postgres, s.make(base, e.rows)...); err != nil {
		return "", fmt.Errorf("making changes: %w", err)
	}
	end, err := query(ctx, e.postgres, "select pg_current_wal_insert_lsn()")
	e.end = strings.Join(end, "")
	return fmt.Sprintf("%s changes of one table with 6 columns and %s rows: %s", count(e.rows), count(base), s.said), err
}

// prepareOthers makes a database in which others find what was there before the changes.
func prepareOthers(ctx context.Context, e *jobEnv) error {
	if err := execute(ctx, e.into, "create database "+intoDB+"_others_base"); err != nil {
		return err
	}
	base := database(e.into, intoDB+"_others_base")
	if err := execute(ctx, base, "create table "+followed+" ("+definition(narrow())+", primary key (id))"); err != nil {
		return err
	}
	if err := run(ctx, psql(e.postgres, "copy "+followed+" to stdout")+" | "+psql(base, "copy "+followed+" from stdin")); err != nil {
		return err
	}
	e.fresh = renewDatabase(*e, "others")
	e.into = database(e.into, intoDB+"_others")
	return run(ctx, e.fresh)
}

// receiver is Postgres' own program, which writes the stream to /dev/null.
func receiver(e jobEnv, over, url, slot string) contender {
	c := contender{
		name: "pg_recvlogical, " + over, limit: true, settings: "proto_version 1, text values",
		reset: psql(e.postgres, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '"+slot+"'",
			"select pg_copy_logical_replication_slot('"+baseSlot+"', '"+slot+"')") + " > /dev/null",
		command: "pg_recvlogical -d " + quote(url) + " --slot " + slot +
			" --start --no-loop -o proto_version=1 -o publication_names=" + publication +
			" --endpos " + e.end + " -f /dev/null",
	}
	if url == "" {
		c.skip = noSocket
	}
	return c
}

// measureSender measures a contender, and what the server's process that sends it the changes does meanwhile.
func measureSender(ctx context.Context, e jobEnv, c contender) (measured, error) {
	if err := resetFor(ctx, c); err != nil {
		return measured{}, err
	}
	c.reset = ""
	watch, stop := context.WithCancel(ctx)
	var seen sender
	var work sync.WaitGroup
	work.Go(func() { seen = watchSender(watch, e.postgres) })
	m, err := measure(ctx, e, c)
	stop()
	work.Wait()
	m.Extra = map[string]float64{"sender_cpu": seen.cpu, "feedback_gap": seen.gap}
	return m, errors.Join(err, seen.err)
}

// sender is what was seen of the processes that send changes.
type sender struct {
	cpu float64 // seconds of CPU
	gap float64 // the longest time in seconds without a reply of the client
	err error
}

// watchSender looks at the server's senders ten times a second, until its context ends. Of a server on another machine there is nothing
// to see.
func watchSender(ctx context.Context, server string) (s sender) {
	conn, err := connect(ctx, server)
	if err != nil {
		return sender{err: err}
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // all was read
	cpu := map[int]float64{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.look(ctx, conn, cpu)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return sender{err: err}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	for _, c := range cpu {
		s.cpu += c
	}
	return s
}

// look takes what each sender has used so far.
func (s *sender) look(ctx context.Context, conn *pgx.Conn, cpu map[int]float64) error {
	rows, err := conn.Query(ctx, "select r.pid, coalesce(extract(epoch from clock_timestamp() - reply_time), 0)::float8 from "+
		"pg_stat_replication r "+
		"join pg_replication_slots s on s.active_pid = r.pid where s.database = current_database()")
	if err != nil {
		return err
	}
	var pid int
	var gap float64
	_, err = pgx.ForEachRow(rows, []any{&pid, &gap}, func() error {
		s.gap = max(s.gap, gap)
		cpu[pid] = max(cpu[pid], processCPU(pid))
		return nil
	})
	return err
}
