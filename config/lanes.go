package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
)

// Lanes says where what was read waits for the sinks of a source that is followed.
type Lanes struct {
	Kind     string           // auto (or empty), memory or durable
	URL      connector.Secret // of NATS servers that keep durable lanes, with commas between; empty: this process keeps them itself
	Creds    string           // file with the credentials for URL; empty: none, or those in URL
	Replicas int              // of what waits, where URL is a cluster; 0: 1
	Folder   string           // of the lanes that this process keeps itself; empty: one beside the saved state
	Quota    int64            // bytes that a durable lane may hold; 0: no bound
	Age      time.Duration    // that its oldest item may reach; 0: no bound
	Over     string           // what happens to a lane over its bounds: hold (or empty) or detach
}

// The kinds of lanes.
const (
	LanesAuto    = "auto"    // durable ones where several sinks are fed, else in memory
	LanesMemory  = "memory"  // a few batches for each sink: a slow or paused sink holds the others once its lane is full
	LanesDurable = "durable" // on a disk: no sink holds another one, and what was read once is not read again
)

// What happens to a durable lane over its bounds.
const (
	OverHold   = "hold"   // the source is read no further, and no sink gets more
	OverDetach = "detach" // the lane is emptied and its sink is filled anew when it is back; the others go on
)

// ParseLanes reads auto, memory or durable.
func ParseLanes(s string) (string, error) {
	if !slices.Contains(laneKinds(), s) {
		return "", connector.UnknownName("kind of lanes", s, laneKinds())
	}
	return s, nil
}

func laneKinds() []string { return []string{LanesAuto, LanesMemory, LanesDurable} }

func parseOver(s string) (string, error) {
	known := []string{OverHold, OverDetach}
	if !slices.Contains(known, s) {
		return "", connector.UnknownName("way to treat a lane over its bounds", s, known)
	}
	return s, nil
}

// lanes reads `lanes: durable` or `lanes: {kind: durable, quota: 10GB, …}`.
func (d *decoder) lanes(v *node) Lanes {
	var l Lanes
	kind := func(v *node) { parsed(d, v, &l.Kind, ParseLanes) }
	if v.kind == scalarNode {
		kind(v)
		return l
	}
	before := len(d.problems)
	d.fields(v, "lanes", []field{
		{key: "kind", decode: kind},
		{key: "url", decode: func(v *node) { d.laneURL(v, &l.URL) }},
		{key: "creds", decode: func(v *node) { d.text(v, &l.Creds) }},
		{key: "replicas", decode: func(v *node) { d.replicas(v, &l.Replicas) }},
		{key: "folder", decode: func(v *node) { d.text(v, &l.Folder) }},
		{key: "quota", decode: func(v *node) { parsed(d, v, &l.Quota, ParseSize) }},
		{key: "age", decode: func(v *node) { parsed(d, v, &l.Age, ParseAge) }},
		{key: "over", decode: func(v *node) { parsed(d, v, &l.Over, parseOver) }},
	})
	if len(d.problems) == before && v.kind == mapNode {
		d.laneConflicts(v, l)
	}
	return l
}

// laneConflicts refuses what contradicts itself, or would have no effect.
func (d *decoder) laneConflicts(v *node, l Lanes) {
	if l.Kind == LanesMemory {
		for _, e := range v.entries {
			if e.key != "kind" {
				d.fail(e.at, "lanes: %q is for durable lanes, and kind is memory", e.key)
			}
		}
		return
	}
	if l.URL != "" && l.Folder != "" {
		d.fail(v.get("folder"), "lanes: folder is for lanes that this process keeps itself, url for those of servers: want one of them")
	}
	for _, key := range []string{"creds", "replicas"} {
		if at := v.get(key); at != nil && l.URL == "" {
			d.fail(at, "lanes: %s is for the servers of url, which is missing", key)
		}
	}
	if l.Over == OverDetach && l.Quota == 0 && l.Age == 0 {
		d.fail(v.get("over"), "lanes: over: detach has no effect without a quota or an age")
	}
}

// maxReplicas is what JetStream has at most.
const maxReplicas = 5

func (d *decoder) replicas(v *node, dst *int) {
	n := d.count(v)
	if n > maxReplicas {
		d.fail(v, "want at most %d replicas, not %d", maxReplicas, n)
		return
	}
	*dst = int(n)
}

// laneSchemes are the schemes of URLs of NATS servers.
func laneSchemes() []string { return []string{"nats", "tls", "ws", "wss"} }

// laneURL reads the URL of a server, or a list of those of a cluster. Messages show nothing of them: they may hold a password.
func (d *decoder) laneURL(v *node, dst *connector.Secret) {
	servers := d.strings(v)
	for i, server := range servers {
		servers[i] = strings.ReplaceAll(server, ",", "%2C") // of a password; they stand between the URLs
		if err := CheckURL(server); err != nil {
			d.fail(v, "lanes: url: %s", withHint(err))
			return
		}
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || !slices.Contains(laneSchemes(), u.Scheme) {
			d.fail(v, "lanes: url: want the URL of a NATS server, such as nats://HOST:4222, with one of the schemes %s",
				strings.Join(laneSchemes(), ", "))
			return
		}
	}
	*dst = connector.Secret(strings.Join(servers, ","))
}

func lanesSchema() object {
	kind := enum("auto: durable where several sinks are fed; memory: a few batches for each sink, so that a slow one holds the others; "+
		"durable: on a disk, where no sink holds another one.", laneKinds()...)
	return object{
		"description": "Of a source that is followed, where what was read waits for the sinks.",
		"oneOf": []any{kind, object{
			"type": "object", "additionalProperties": false,
			"properties": object{
				"kind": kind,
				"url": object{
					"description": "The NATS server, or servers, that keep durable lanes; left out: this process keeps them itself.",
					"type":        []string{"string", "array"}, "items": object{"type": "string"},
				},
				"creds": object{"description": "A file with credentials for the servers of url.", "type": "string"},
				"replicas": object{
					"description": "Where url is a cluster, how many of its servers keep what waits; left out: one.",
					"type":        "integer", "minimum": 0, "maximum": maxReplicas,
				},
				"folder": object{
					"description": "Where this process keeps durable lanes; left out: beside the saved state.", "type": "string",
				},
				"quota": object{
					"description": "What a durable lane may hold, such as 10GB; left out or 0: no bound.",
					"type":        []string{"string", "integer"}, "pattern": sizePattern, "minimum": 0,
				},
				"age": object{
					"description": "What the oldest item of a durable lane may reach, such as 7d; left out: no bound.",
					"type":        "string",
				},
				"over": enum("What happens to a lane over quota or age. hold: the source is read no further; detach: the lane is emptied, "+
					"and its sink filled anew when it is back.", OverHold, OverDetach),
			},
		}},
	}
}

// sizePattern admits what ParseSize reads, and references.
const sizePattern = `^\s*[0-9]+\s*([kKmMgGtT]?[bB]?|[kKmMgGtT][iI][bB])\s*$|\$\{`

// ParseSize reads a number of bytes: 1000000, 64MB, 16MiB.
func ParseSize(s string) (int64, error) {
	number := strings.TrimRight(s, "kKmMgGtTiBb ")
	unit := strings.TrimSpace(s[len(number):])
	factors := map[string]int64{
		"": 1, "b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9, "t": 1e12, "tb": 1e12,
		"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	}
	factor, ok := factors[strings.ToLower(unit)]
	n, err := parseCount(strings.TrimSpace(number))
	if err != nil || !ok || n > (1<<62)/factor {
		return 0, fmt.Errorf("%q is no size: want a number of bytes, such as 1000000, 64MB or 16MiB", s)
	}
	return n * factor, nil
}

// ParseAge reads a positive duration, which may begin with weeks and days: 90m, 36h, 7d, 1w12h.
func ParseAge(s string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is no age: want a positive duration, such as 90m, 36h or 7d", s)
	rest := strings.TrimSpace(s)
	var age time.Duration
	for _, u := range []struct {
		unit string
		size time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, ok := strings.Cut(rest, u.unit)
		if !ok {
			continue
		}
		n, err := parseCount(number)
		if err != nil || n > int64(maxAge/u.size) {
			return 0, wrong
		}
		age, rest = age+time.Duration(n)*u.size, after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || d > maxAge {
			return 0, wrong
		}
		age += d
	}
	if age <= 0 {
		return 0, wrong
	}
	return age, nil
}

// maxAge keeps sums of ages in range: a hundred years.
const maxAge = 100 * 365 * 24 * time.Hour
