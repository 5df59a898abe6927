package postgres

import (
	"context"
	"log/slog"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// partitionsSQL lists what partitioned tables consist of, and whether each part was a table before it became one.
const partitionsSQL = `SELECT r.oid::int8, p.relid::oid::int8, n.nspname, c.relname,
	(SELECT h.xmin FROM pg_catalog.pg_inherits h WHERE h.inhrelid = p.relid)
		<> (SELECT a.xmin FROM pg_catalog.pg_attribute a WHERE a.attrelid = p.relid AND a.attname = 'ctid')
FROM pg_catalog.unnest($1::oid[]) r(oid) CROSS JOIN LATERAL pg_catalog.pg_partition_tree(r.oid) p
JOIN pg_catalog.pg_class c ON c.oid = p.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE p.relid <> r.oid`

// partition is a part of a partitioned table.
type partition struct {
	oid      uint32
	dataset  string
	attached bool // it was a table before
}

// watchPartitions says what became of partitions since it was called last: rows come and go with them of which the log says nothing.
func (s *Source) watchPartitions(ctx context.Context, f *followFacts) error {
	now, err := s.readPartitions(ctx, f.tables)
	if err != nil {
		return err
	}
	was := s.joining.partitions
	s.joining.partitions = now
	for _, t := range f.tables {
		before, seen := was[t.OID]
		if !seen {
			continue
		}
		for oid, p := range now[t.OID] {
			if _, ok := before[oid]; !ok {
				s.partitionCame(ctx, f, t, p)
			}
		}
		for oid, p := range before {
			if _, ok := now[t.OID][oid]; !ok {
				s.env.Log.WarnContext(ctx, "a partition was detached or dropped: its rows went without changes; --resnapshot removes them",
					slog.String("dataset", t.dataset()), slog.String("partition", p.dataset))
			}
		}
	}
	return nil
}

// readPartitions returns the parts of the partitioned ones among tables, by the OIDs of both.
func (s *Source) readPartitions(ctx context.Context, tables []*followTable) (map[uint32]map[uint32]partition, error) {
	out := map[uint32]map[uint32]partition{}
	var oids []string
	for _, t := range tables {
		if t.Kind == "p" {
			oids = append(oids, strconv.FormatUint(uint64(t.OID), 10))
			out[t.OID] = map[uint32]partition{}
		}
	}
	if len(oids) == 0 {
		return out, nil
	}
	err := s.borrow(ctx, func(pg *pgconn.PgConn) error {
		rows, err := ask(ctx, pg, partitionsSQL, "{"+strings.Join(oids, ",")+"}")
		for _, r := range rows {
			p := partition{
				oid: toOID(r[1]), dataset: relation{schema: string(r[2]), name: string(r[3])}.dataset(), attached: isTrue(r[4]),
			}
			out[toOID(r[0])][p.oid] = p
		}
		return err
	})
	return out, err
}

// partitionCame says what there is to say of a part that is new.
func (s *Source) partitionCame(ctx context.Context, f *followFacts, t *followTable, p partition) {
	if p.attached {
		s.env.Log.WarnContext(ctx, "a table was attached as a partition: the rows that it had come without changes; "+
			"--resnapshot copies them", slog.String("dataset", t.dataset()), slog.String("partition", p.dataset))
	}
	if why, fix := f.refused(t); why != "" {
		s.say(ctx, "partition "+p.dataset, "a new partition breaks updates and deletes of the application",
			slog.String("partition", p.dataset), slog.String("why", why), slog.String("fix", strings.Join(fix, " ")))
	}
}
