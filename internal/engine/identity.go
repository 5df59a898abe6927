package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// identityOf is what the positions of a pipeline depend on (S16): the semantic options of source and sinks, transforms, modes, the
// guarantee, and of every dataset key and columns. Hosts, credentials and sizes are no part of it.
func identityOf(p Plan, modes []connector.WriteMode, schemas []*record.Schema) map[string]string {
	id := map[string]string{"source": p.Source.Connector, "guarantee": p.Guarantee.String()}
	for k, v := range p.Source.Config.Identity() {
		id["source."+k] = v
	}
	if p.Source.Text != "" {
		id["transforms"] = p.Source.Text
	}
	if p.Limit > 0 {
		id["limit"] = strconv.FormatInt(p.Limit, 10)
	}
	for i, s := range p.Sinks {
		at := "sink " + s.Name
		id[at] = s.Connector
		id[at+" mode"] = modes[i].String()
		for k, v := range s.Config.Identity() {
			id[at+"."+k] = v
		}
		if s.Text != "" {
			id[at+" transforms"] = s.Text
		}
	}
	for _, s := range schemas {
		id["dataset "+s.Dataset+" key"] = strings.Join(s.KeyNames(), ", ")
		id[columnsOf(s.Dataset)] = columnsText(s)
	}
	return id
}

func columnsOf(dataset string) string { return "dataset " + dataset + " columns" }

// columnsText is one line per column, so that a column's name may hold anything but a line break.
func columnsText(s *record.Schema) string {
	lines := make([]string, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		t, err := record.TypeOf(f.Type)
		if err != nil {
			lines[i] = f.Name + " " + f.Type.String()
			continue
		}
		lines[i] = f.Name + " " + t.String()
	}
	return strings.Join(lines, "\n")
}

// identityChanges says what is different, in words. Datasets and columns that came to be are no change: what was saved still means
// the same.
func identityChanges(saved, today map[string]string) []string {
	was, is := maps.Clone(saved), maps.Clone(today)
	for k := range is {
		old, known := was[k]
		switch {
		case !strings.HasPrefix(k, "dataset "):
		case !known:
			delete(is, k)
		case strings.HasSuffix(k, " columns") && grew(old, is[k]):
			delete(is, k)
			delete(was, k)
		}
	}
	for k, v := range was {
		if now, ok := is[k]; ok && strings.HasSuffix(k, " columns") && v != now {
			was[k], is[k] = onlyIn(v, now), onlyIn(now, v)
		}
	}
	return state.ExplainIdentity(was, is)
}

// followedIdentity leaves out of a saved identity what changes by itself while datasets are followed: which there are, and their columns.
// stale are those whose columns changed by more than additions.
func followedIdentity(saved, today map[string]string) (rest map[string]string, stale []string) {
	rest = maps.Clone(saved)
	for _, k := range slices.Sorted(maps.Keys(saved)) {
		name, ok := strings.CutSuffix(k, " columns")
		now, known := today[k]
		switch {
		case !strings.HasPrefix(k, "dataset "):
		case !known:
			delete(rest, k)
		case ok:
			if !grew(saved[k], now) {
				stale = append(stale, strings.TrimPrefix(name, "dataset "))
			}
			rest[k] = now
		}
	}
	return rest, stale
}

// freezeChanged adds to the columns that targets keep those of datasets that changed while nobody followed them, where the policy is
// that a target stays as it is.
func (p Plan) freezeChanged(frozen map[string]map[string][]string, saved, today map[string]string) map[string]map[string][]string {
	out := map[string]map[string][]string{}
	for sink, datasets := range frozen {
		out[sink] = maps.Clone(datasets)
	}
	for k, was := range saved {
		name, ok := strings.CutSuffix(strings.TrimPrefix(k, "dataset "), " columns")
		now, known := today[k]
		if !ok || !known || was == now {
			continue
		}
		for _, s := range p.Sinks {
			policy := s.schemaPolicy(name)
			if _, done := out[s.Name][name]; done || (policy != IgnoreSchema && policy != SetAsideSchema) {
				continue
			}
			if out[s.Name] == nil {
				out[s.Name] = map[string][]string{}
			}
			out[s.Name][name] = columnNames(was)
		}
	}
	return out
}

// columnNames are the names in a text that columnsText made. The type behind a name has spaces only within brackets.
func columnNames(text string) []string {
	var names []string
	for line := range strings.SplitSeq(text, "\n") {
		at, depth := len(line)-1, 0
		for ; at >= 0 && (line[at] != ' ' || depth > 0); at-- {
			switch line[at] {
			case ')', ']', '>':
				depth++
			case '(', '[', '<':
				depth--
			}
		}
		names = append(names, line[:max(at, 0)])
	}
	return names
}

// grew reports whether every line of before is in after.
func grew(before, after string) bool { return onlyIn(before, after) == "" }

// onlyIn returns the lines of a that b lacks.
func onlyIn(a, b string) string {
	have := strings.Split(b, "\n")
	var lines []string
	for line := range strings.SplitSeq(a, "\n") {
		if !slices.Contains(have, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ", ")
}

// runID makes a name for a run: the attempt that began it, which is never reused, and some chance, in case the state was deleted.
func (r *runner) runID(attempt uint64) string {
	return fmt.Sprintf("%d-%08x", attempt, uint32(r.random(1<<32)))
}
