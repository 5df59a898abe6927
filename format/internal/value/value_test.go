package value_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/internal/value"
	"github.com/leatdata/leat/record"
)

// Every type prints as package record prints it, also from the middle of an array.
func TestPrintsAsRecord(t *testing.T) {
	for _, c := range connectortest.Cases() {
		for _, b := range []*record.Batch{connectortest.Batch("d", c), connectortest.Sliced(connectortest.Batch("d", c))} {
			arr := b.Rows.Column(1)
			p := value.Bind(arr)
			for i := range b.NumRows() {
				if p.Null(i) != arr.IsNull(i) {
					t.Errorf("%s %d: null differs", c.Name, i)
				}
				if arr.IsNull(i) {
					continue
				}
				if got, want := string(p.Text(nil, i)), string(record.AppendText(nil, arr, i)); got != want {
					t.Errorf("%s %d: text %q, want %q", c.Name, i, got, want)
				}
				want := strings.NewReplacer("\n", " ", "\r", " ").Replace(string(record.AppendJSON(nil, arr, i)))
				if got := string(p.JSON(nil, i)); got != want {
					t.Errorf("%s %d: JSON %q, want %q", c.Name, i, got, want)
				}
			}
		}
	}
}

// Floats keep their digits.
func TestFloats(t *testing.T) {
	check := func(f float64) {
		if got, want := string(value.Float(nil, f)), string(record.AppendFloat(nil, f, 64)); got != want {
			t.Fatalf("%g prints as %s, want %s", f, got, want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		check(float64(r.Int64N(2e15)-1e15) / 100)
		check(float64(r.Int64N(2e6)-1e6) / 1000)
		check(float64(r.Int64N(2e15)-1e15) / 1e6)
		check(float64(r.Int64N(2e12)) / 1e7)
		check(math.Float64frombits(r.Uint64()))
	}
	for _, f := range []float64{0, math.Copysign(0, -1), 0.01, -0.01, 0.005, 1e13, 1e-7, 4e-7, 5e-7, 1e-6, 999999999.999999, 1e9, 9999999999999.99, 1e-300, math.NaN(), math.Inf(1), math.Inf(-1)} {
		check(f)
	}
}

func TestDates(t *testing.T) {
	for d := int64(-800_000); d < 3_000_000; d += 13 {
		if got, want := string(value.Date(nil, d)), string(record.AppendDate(nil, d)); got != want {
			t.Fatalf("day %d prints as %s, want %s", d, got, want)
		}
	}
	for _, d := range []int64{-719528, -719529, 2932896, 2932897, 0, math.MinInt32, math.MaxInt32} {
		if got, want := string(value.Date(nil, d)), string(record.AppendDate(nil, d)); got != want {
			t.Fatalf("day %d prints as %s, want %s", d, got, want)
		}
	}
}

func TestStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "tail"))
		if got, want := string(value.String(nil, []byte(s))), string(record.AppendJSONString(nil, s)); got != want {
			t.Fatalf("%q prints as %s, want %s", s, got, want)
		}
	})
}

func TestTimestamps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	check := func(v int64) {
		for _, zoned := range []bool{false, true} {
			if got, want := string(value.Timestamp(nil, v, zoned)), string(record.AppendTimestamp(nil, v, arrow.Microsecond, zoned)); got != want {
				t.Fatalf("%d prints as %s, want %s", v, got, want)
			}
		}
	}
	for range 100_000 {
		check(r.Int64N(4e17) - 2e17)
		check((r.Int64N(4e11) - 2e11) * 1e6)
		check(int64(r.Uint64()))
	}
	for _, v := range []int64{0, -1, -1e6, 1e6, math.MaxInt64, math.MinInt64} {
		check(v)
	}
}
