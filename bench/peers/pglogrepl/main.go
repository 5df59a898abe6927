// Command pglogrepl follows a slot with the usual library of Go, as its readers do: the values of each row are decoded by their types into
// a map. It ends behind a number of changes.
//
//	pglogrepl URL SLOT PUBLICATION CHANGES
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "pglogrepl:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, slot, publication, changes string) error {
	most, err := strconv.Atoi(changes)
	if err != nil {
		return err
	}
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return err
	}
	config.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	err = pglogrepl.StartReplication(ctx, conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + publication + "'"},
	})
	if err != nil {
		return err
	}
	d := decoder{types: pgtype.NewMap(), relations: map[uint32]*pglogrepl.RelationMessage{}}
	next := time.Now()
	for d.changes < most {
		if time.Now().After(next) {
			if err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: d.at}); err != nil {
				return err
			}
			next = time.Now().Add(time.Second)
		}
		message, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		case *pgproto3.CopyData:
			if err := d.take(m.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

type decoder struct {
	types     *pgtype.Map
	relations map[uint32]*pglogrepl.RelationMessage
	row       map[string]any // the newest
	changes   int
	at        pglogrepl.LSN // end of the newest transaction
}

func (d *decoder) take(data []byte) error {
	if data[0] != pglogrepl.XLogDataByteID {
		return nil
	}
	x, err := pglogrepl.ParseXLogData(data[1:])
	if err != nil {
		return err
	}
	message, err := pglogrepl.Parse(x.WALData)
	if err != nil {
		return err
	}
	switch m := message.(type) {
	case *pglogrepl.RelationMessage:
		d.relations[m.RelationID] = m
	case *pglogrepl.CommitMessage:
		d.at = m.TransactionEndLSN
	case *pglogrepl.InsertMessage:
		return d.change(m.RelationID, m.Tuple)
	case *pglogrepl.UpdateMessage:
		return d.change(m.RelationID, m.NewTuple)
	case *pglogrepl.DeleteMessage:
		return d.change(m.RelationID, m.OldTuple)
	}
	return nil
}

func (d *decoder) change(relation uint32, tuple *pglogrepl.TupleData) error {
	r, ok := d.relations[relation]
	if !ok {
		return errors.New("a relation that was not described")
	}
	d.changes++
	d.row = make(map[string]any, len(tuple.Columns))
	for i, c := range tuple.Columns {
		if c.DataType != pglogrepl.TupleDataTypeText {
			continue
		}
		of := r.Columns[i]
		t, ok := d.types.TypeForOID(of.DataType)
		if !ok {
			d.row[of.Name] = string(c.Data)
			continue
		}
		value, err := t.Codec.DecodeValue(d.types, of.DataType, pgtype.TextFormatCode, c.Data)
		if err != nil {
			return err
		}
		d.row[of.Name] = value
	}
	return nil
}
