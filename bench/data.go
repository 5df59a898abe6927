package main

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
)

const csvHeader = "id,qty,price,amount,name,active,created,note\n"

// writeCSV writes rows of believable data, always the same, and stops early at the size limit if there is one.
func writeCSV(path string, rows, limit int64) (size, n int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	size, n, err = makeCSV(f, rows, limit)
	return size, n, errors.Join(err, f.Close())
}

// makeCSV writes the same to anything.
func makeCSV(to io.Writer, rows, limit int64) (size, n int64, err error) {
	w := bufio.NewWriterSize(to, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	line := append(make([]byte, 0, 256), csvHeader...)
	for i := int64(0); ; i++ {
		if _, err := w.Write(line); err != nil {
			return 0, 0, err
		}
		if size += int64(len(line)); i == rows || (limit > 0 && size >= limit) {
			return size, i, w.Flush()
		}
		line = appendRow(line[:0], next(i, rnd), false)
	}
}

// makeJSONL writes what a CSV of as many rows says, as JSON Lines.
func makeJSONL(to io.Writer, rows int64) error {
	w := bufio.NewWriterSize(to, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	var line []byte
	for i := range rows {
		line = appendRow(line[:0], next(i, rnd), true)
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return w.Flush()
}

// row is one row of the CSV. A note of 0 is none.
type row struct {
	id, qty, customer         int64
	price, amount             float64
	active                    bool
	day, hour, minute, second int64
	note                      uint64
}

func next(i int64, rnd *rand.Rand) row {
	r := row{
		id: i, qty: rnd.Int64N(1000), price: float64(rnd.Int64N(1_000_000)) / 1000, amount: float64(rnd.Int64N(10_000_000)) / 100,
		customer: rnd.Int64N(1_000_000), active: rnd.IntN(2) == 0,
		day: 1 + rnd.Int64N(28), hour: rnd.Int64N(24), minute: rnd.Int64N(60), second: rnd.Int64N(60),
	}
	if rnd.IntN(10) != 0 {
		r.note = rnd.Uint64()
	}
	return r
}

// appendRow writes a row as a line of CSV, or of JSON.
func appendRow(b []byte, r row, json bool) []byte {
	// field begins a value: what stands before it, and its quote.
	field := func(name, quote string) {
		if json {
			b = append(append(append(append(b, `,"`...), name...), `":`...), quote...)
		} else {
			b = append(b, ',')
		}
	}
	end := func(quote string) {
		if json {
			b = append(b, quote...)
		}
	}
	if json {
		b = append(b, `{"id":`...)
	}
	b = strconv.AppendInt(b, r.id, 10)
	field("qty", "")
	b = strconv.AppendInt(b, r.qty, 10)
	field("price", "")
	b = strconv.AppendFloat(b, r.price, 'f', -1, 64)
	field("amount", "")
	b = strconv.AppendFloat(b, r.amount, 'f', -1, 64)
	field("name", `"`)
	b = append(b, "customer name number "...)
	b = strconv.AppendInt(b, r.customer, 10)
	end(`"`)
	field("active", "")
	b = strconv.AppendBool(b, r.active)
	field("created", `"`)
	b = append(b, "2026-01-"...)
	b = append(twoDigits(b, r.day), 'T')
	b = append(twoDigits(b, r.hour), ':')
	b = append(twoDigits(b, r.minute), ':')
	b = twoDigits(b, r.second)
	end(`"`)
	field("note", "")
	switch {
	case r.note != 0:
		b = append(b, `"note, with a comma `...)
		b = append(strconv.AppendUint(b, r.note, 16), '"')
	case json:
		b = append(b, "null"...)
	}
	end("}")
	return append(b, '\n')
}

func twoDigits(b []byte, n int64) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }
