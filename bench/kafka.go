package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A follower that writes to Kafka has topics of its own, whose names begin alike: that of its rows, and that of its positions. Where a run
// stands is in the latter, and counts before what its state folder says. So topics are put back before each run, too.

const topicPrefix = "leat_bench_"

// kafkaSink is as by default (JSON, in transactions), but for the number of partitions, and for when messages are compacted: not while they
// are counted.
const kafkaSink = "  kept: {kafka: {brokers: 'BROKERS', topic: 'TOPICS{table}', position_topic: TOPICSpositions, " +
	"transactional_id_prefix: TOPICSid, partitions: 4, topic_config: {min.compaction.lag.ms: '86400000'}}, mode: upsert}"

const kafkaSettings = "mode upsert, a topic of 4 partitions on one broker, compacted after a day"

// topics is how the names of a follower's topics begin.
func (f follower) topics() string { return topicPrefix + f.id + "_" }

func (f follower) needsKafka() bool { return strings.Contains(f.sinks, "TOPICS") }

// topicsFile keeps a follower's topics as they were behind start.
func (f follower) topicsFile(e jobEnv) string { return filepath.Join(e.dir, f.id+".topics.json") }

// keptTopic is a topic with all that is committed in it.
type keptTopic struct {
	Name       string             `json:"name"`
	Partitions int32              `json:"partitions"`
	Settings   map[string]*string `json:"settings"` // those that are its own
	Records    []keptRecord       `json:"records"`
}

type keptRecord struct {
	Partition int32              `json:"partition"`
	Time      time.Time          `json:"time"`
	Key       []byte             `json:"key"` // nil: there is none
	Value     []byte             `json:"value"`
	Headers   []kgo.RecordHeader `json:"headers"`
}

// kafka opens a client that soon sees what became of topics.
func kafka(brokers string, opts ...kgo.Opt) (*kgo.Client, error) {
	const age = 50 * time.Millisecond
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.MetadataMinAge(age)}, opts...)...)
}

// keepTopics writes down the topics whose names begin so.
func keepTopics(ctx context.Context, brokers, prefix, file string) error {
	cl, err := kafka(brokers)
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	details, err := topicsOf(ctx, admin, prefix)
	if err != nil {
		return err
	}
	if len(details) == 0 {
		return fmt.Errorf("there are no topics %s*", prefix)
	}
	kept := map[string]*keptTopic{}
	for name, d := range details {
		kept[name] = &keptTopic{Name: name, Partitions: int32(len(d.Partitions)), Settings: map[string]*string{}}
	}
	settings, err := admin.DescribeTopicConfigs(ctx, details.Names()...)
	if err != nil {
		return err
	}
	for _, s := range settings {
		if s.Err != nil {
			return fmt.Errorf("settings of topic %s: %w", s.Name, s.Err)
		}
		for _, c := range s.Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				kept[s.Name].Settings[c.Key] = c.Value
			}
		}
	}
	err = readTopics(ctx, brokers, details.Names(), func(r *kgo.Record) error {
		t := kept[r.Topic]
		t.Records = append(t.Records, keptRecord{r.Partition, r.Timestamp, r.Key, r.Value, r.Headers})
		return nil
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(slices.Collect(maps.Values(kept)))
	return errors.Join(err, os.WriteFile(file, text, 0o600))
}

// restoreTopics makes the topics whose names begin so what they were when they were written down: it makes them anew, with the same
// settings and records.
func restoreTopics(ctx context.Context, brokers, prefix, file string) error {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return err
	}
	var kept []keptTopic
	if err := json.Unmarshal(text, &kept); err != nil {
		return err
	}
	if err := dropTopics(ctx, brokers, prefix); err != nil {
		return err
	}
	cl, err := kafka(brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	for _, t := range kept {
		if _, err := admin.CreateTopic(ctx, t.Partitions, -1, t.Settings, t.Name); err != nil {
			return fmt.Errorf("making topic %s: %w", t.Name, err)
		}
		err := await(ctx, "topic "+t.Name+" to be there", func() (bool, error) {
			ends, err := admin.ListEndOffsets(ctx, t.Name) // the leader of every partition answers, or an error stands for it
			return err == nil && ends.Error() == nil && len(ends[t.Name]) == int(t.Partitions), nil
		})
		if err != nil {
			return err
		}
		for _, r := range t.Records { // one by one: those of a partition in their order
			sent := &kgo.Record{Topic: t.Name, Partition: r.Partition, Timestamp: r.Time, Key: r.Key, Value: r.Value, Headers: r.Headers}
			if err := cl.ProduceSync(ctx, sent).FirstErr(); err != nil {
				return fmt.Errorf("putting back a record of topic %s: %w", t.Name, err)
			}
		}
	}
	return nil
}

// dropTopics deletes the topics whose names begin so, and returns when they are gone.
func dropTopics(ctx context.Context, brokers, prefix string) error {
	cl, err := kafka(brokers)
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	details, err := topicsOf(ctx, admin, prefix)
	if err != nil || len(details) == 0 {
		return err
	}
	deleted, err := admin.DeleteTopics(ctx, details.Names()...)
	if err := errors.Join(err, deleted.Error()); err != nil {
		return fmt.Errorf("deleting topics %s*: %w", prefix, err)
	}
	return await(ctx, "topics "+prefix+"* to be gone", func() (bool, error) {
		left, err := topicsOf(ctx, admin, prefix)
		return len(left) == 0, err
	})
}

func topicsOf(ctx context.Context, admin *kadm.Client, prefix string) (kadm.TopicDetails, error) {
	all, err := admin.ListTopics(ctx)
	maps.DeleteFunc(all, func(name string, _ kadm.TopicDetail) bool { return !strings.HasPrefix(name, prefix) })
	return all, err
}

// await looks until something is so.
func await(ctx context.Context, what string, look func() (bool, error)) error {
	const most, pause = 30 * time.Second, 20 * time.Millisecond
	for end := time.Now().Add(most); ; {
		done, err := look()
		if done || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %s for %s", most, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// readTopics hands over what is in topics now, of committed transactions only: the records of a partition in their order.
func readTopics(ctx context.Context, brokers string, topics []string, take func(*kgo.Record) error) error {
	from, left, err := endsOf(ctx, brokers, topics)
	if err != nil || len(left) == 0 {
		return err
	}
	// Markers of transactions are read, too: a partition may end with one.
	cl, err := kafka(brokers, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(left) > 0 {
		fetched := cl.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return fmt.Errorf("reading topics %s: %w", strings.Join(topics, ", "), err)
		}
		for r := range fetched.RecordsAll() {
			at := partition{r.Topic, r.Partition}
			if end, reading := left[at]; !reading || r.Offset >= end {
				continue
			}
			if !r.Attrs.IsControl() {
				if err := take(r); err != nil {
					return err
				}
			}
			if r.Offset+1 == left[at] {
				delete(left, at)
			}
		}
	}
	return nil
}

type partition struct {
	topic  string
	number int32
}

// endsOf returns where partitions that are not empty begin and end, once no transaction is open in them, as one is for a moment after
// its commit.
func endsOf(ctx context.Context, brokers string, topics []string) (map[string]map[int32]kgo.Offset, map[partition]int64, error) {
	cl, err := kafka(brokers)
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	var ends kadm.ListedOffsets
	err = await(ctx, "transactions to end", func() (bool, error) {
		committed, err := admin.ListCommittedOffsets(ctx, topics...)
		if err == nil {
			ends, err = admin.ListEndOffsets(ctx, topics...)
		}
		err = errors.Join(err, committed.Error(), ends.Error())
		return maps.EqualFunc(committed, ends, maps.Equal), err
	})
	from, left := map[string]map[int32]kgo.Offset{}, map[partition]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset == 0 {
			return
		}
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition], left[partition{o.Topic, o.Partition}] = kgo.NewOffset().AtStart(), o.Offset
	})
	return from, left, err
}

// inKafka compares a topic with the source.
func inKafka(ctx context.Context, e jobEnv, f follower) error {
	want, err := exportTable(ctx, e.dir, e.postgres, followed, narrow())
	if err != nil {
		return err
	}
	made, err := changesMade(ctx, e)
	if err != nil {
		return err
	}
	read := filepath.Join(e.dir, "exported-kafka.jsonl")
	if err := exportTopic(ctx, e.kafka, f.topics()+"changes", read); err != nil {
		return err
	}
	return sameMessages(ctx, want, read, made)
}

// sameMessages compares the last message of every key with a relation, and says whether there is one message for each change that was
// made: no two of those leave the same row.
func sameMessages(ctx context.Context, want, read string, made int64) error {
	return sameRelations(ctx, narrow(), want, "latest",
		"create view log as select * from "+jsonlRelation(read, []column{
			{name: "key", duckdb: "STRUCT(id BIGINT)"},
			{name: "part", duckdb: "INTEGER"},
			{name: "seq", duckdb: "BIGINT"},
			{name: "message", duckdb: "STRUCT(" + join(narrow(), func(c column) string { return c.name + " " + c.duckdb }) + ")"},
		}),
		fmt.Sprintf("create view counted as select case when count(*) = %[1]d and count(distinct message) = %[1]d and "+
			"count_if(key.id is distinct from message.id) = 0 and count(distinct key.id) = count(distinct (key.id, part)) then true else "+
			"error('the topic has ' || count(*) || ' messages, ' || count(distinct message) || ' different ones, ' || "+
			"count_if(key.id is distinct from message.id) || ' with another key, ' || count(distinct (key.id, part)) || ' places for ' || "+
			"count(distinct key.id) || ' keys; %[1]d changes were made') end as ok from log", made),
		"create view latest as select unnest(arg_max(message, seq)) from log where (select ok from counted) group by key.id")
}

// exportTopic writes a topic as JSON Lines: a line for each message, with its key, and where it is.
func exportTopic(ctx context.Context, brokers, topic, path string) (err error) {
	f, err := os.Create(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	err = readTopics(ctx, brokers, []string{topic}, func(r *kgo.Record) error {
		if r.Key == nil || r.Value == nil {
			return fmt.Errorf("a message of topic %s has no key or no value: %q, %q", topic, r.Key, r.Value)
		}
		_, err := fmt.Fprintf(w, `{"part":%d,"seq":%d,"key":%s,"message":%s}`+"\n", r.Partition, r.Offset, r.Key, r.Value)
		return err
	})
	return errors.Join(err, w.Flush())
}
