package record

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

// ParseText appends to b the value that s is the canonical text form of, see AppendText. Nothing is appended where it returns an
// error: text that is no value of the type, or one that the type can't hold exactly. The builder's type must be of the vocabulary.
func ParseText(b array.Builder, s string) error {
	switch b := b.(type) {
	case *array.StringBuilder:
		if !utf8.ValidString(s) {
			return errors.New("text is not valid UTF-8")
		}
		b.Append(s)
		return nil
	case *array.BooleanBuilder:
		v, err := parseBool(s)
		if err != nil {
			return err
		}
		b.Append(v)
		return nil
	case *array.BinaryBuilder:
		v, err := parseHex(s)
		if err != nil {
			return err
		}
		b.Append(v)
		return nil
	case *array.FixedSizeBinaryBuilder:
		v, err := parseHex(s)
		if err != nil {
			return err
		}
		return appendFixed(b, v)
	case *array.ListBuilder, *array.StructBuilder, *array.MapBuilder:
		return ParseJSON(b, []byte(s))
	}
	if st, ext := storageBuilder(b); ext {
		return parseExtText(b, st, s)
	}
	return parseScalar(b, s)
}

// storageBuilder returns the builder of an extension type's storage.
func storageBuilder(b array.Builder) (array.Builder, bool) {
	eb, ok := b.(interface{ StorageBuilder() array.Builder })
	if !ok {
		return nil, false
	}
	return eb.StorageBuilder(), true
}

func appendFixed(b *array.FixedSizeBinaryBuilder, v []byte) error {
	if w := b.Type().(*arrow.FixedSizeBinaryType).ByteWidth; len(v) != w { //nolint:forcetypeassert // by construction
		return fmt.Errorf("%d bytes, want exactly %d", len(v), w)
	}
	b.Append(v)
	return nil
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true", "t":
		return true, nil
	case "false", "f":
		return false, nil
	}
	return false, fmt.Errorf("%q is no boolean: want true or false", s)
}

func parseHex(s string) ([]byte, error) {
	digits, ok := strings.CutPrefix(s, `\x`)
	if !ok {
		return nil, fmt.Errorf(`%q is no binary value: want \x and hex digits`, s)
	}
	v, err := hex.DecodeString(digits)
	if err != nil {
		return nil, fmt.Errorf("%q is no binary value: %w", s, err)
	}
	return v, nil
}

func parseExtText(b, st array.Builder, s string) error {
	switch st := st.(type) {
	case *array.StringBuilder:
		return parseExtString(b, st, s)
	case *array.Date32Builder:
		if v, ok := parseInfinity(s, math.MinInt32, math.MaxInt32); ok {
			st.Append(arrow.Date32(v))
			return nil
		}
		v, err := parseDate32(s)
		if err == nil && InfiniteDate(v) != 0 {
			err = fmt.Errorf("date %q is what stands for infinity", s)
		}
		if err != nil {
			return err
		}
		st.Append(arrow.Date32(v))
		return nil
	case *array.TimestampBuilder:
		if v, ok := parseInfinity(s, math.MinInt64, math.MaxInt64); ok {
			st.Append(arrow.Timestamp(v))
			return nil
		}
		v, err := parseTimestamp(st, s)
		if err == nil && InfiniteTimestamp(v) != 0 {
			err = fmt.Errorf("timestamp %q is what stands for infinity", s)
		}
		if err != nil {
			return err
		}
		st.Append(arrow.Timestamp(v))
		return nil
	case *array.FixedSizeBinaryBuilder:
		if _, ours := b.Type().(*ExtType); ours {
			v, err := ParseInterval(s)
			if err != nil {
				return err
			}
			st.Append(v.Bytes())
			return nil
		}
		id, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
		if err != nil || len(s) != uuidText {
			return fmt.Errorf("%q is no uuid", s)
		}
		return appendFixed(st, id)
	default:
		return ParseJSON(b, []byte(s))
	}
}

func parseInfinity(s string, lowest, highest int64) (int64, bool) {
	switch s {
	case infinity:
		return highest, true
	case negInfinity:
		return lowest, true
	}
	return 0, false
}

// uuidText is the length of a uuid's 8-4-4-4-12 form.
const uuidText = 36

// parseExtString checks the text of the types that are kept as text.
func parseExtString(b array.Builder, st *array.StringBuilder, s string) error {
	t, err := TypeOf(b.Type())
	if err != nil {
		return err
	}
	switch {
	case !utf8.ValidString(s):
		return errors.New("text is not valid UTF-8")
	case t.Kind == Numeric:
		if s, err = CanonicalNumeric(s); err != nil {
			return err
		}
	case t.Kind == JSON:
		if err := CheckJSON([]byte(s)); err != nil {
			return err
		}
	case t.Kind == Bits:
		if err := checkBits(t, s); err != nil {
			return err
		}
	case t.Kind == Network:
		if err := checkNetwork(t.Name, s); err != nil {
			return err
		}
	case t.Kind == Enum && t.Labels != nil && !slices.Contains(t.Labels, s):
		return fmt.Errorf("%q is no label of %s: %q", s, t.Name, t.Labels)
	}
	st.Append(s)
	return nil
}

func checkBits(t Type, s string) error {
	switch n := len(s); {
	case strings.Trim(s, "01") != "":
		return fmt.Errorf("%q is no bit string", s)
	case t.Width > 0 && (n > t.Width || (n < t.Width && !t.Varying)):
		return fmt.Errorf("bit string of length %d does not fit %s", n, FormatType(t.Arrow))
	}
	return nil
}

// checkNetwork checks an address of a known kind.
func checkNetwork(kind, s string) error {
	ok := true
	switch kind {
	case "inet", "cidr":
		address, _, masked := strings.Cut(s, "/")
		ip, err := netip.ParseAddr(address)
		ok = err == nil && ip.Zone() == ""
		if ok && (masked || kind == "cidr") {
			prefix, err := netip.ParsePrefix(s)
			ok = err == nil && (kind == "inet" || prefix.Masked() == prefix)
		}
	case "macaddr", "macaddr8":
		mac, err := net.ParseMAC(s)
		ok = err == nil && len(mac) == map[string]int{"macaddr": 6, "macaddr8": 8}[kind]
	}
	if !ok {
		return fmt.Errorf("%q is no %s address", s, kind)
	}
	return nil
}

// maxNumericDigits bounds what an exponent may expand to: more than any database holds.
const maxNumericDigits = 150_000

// CanonicalNumeric returns the canonical text of a number: an optional minus, digits without leading zeros, and, where there is
// a point, the digits behind it as they are. It reads exponents, a plus sign, and NaN, Infinity, inf in any case.
func CanonicalNumeric(s string) (string, error) {
	bad := func() error { return fmt.Errorf("%q is no number", s) }
	switch strings.ToLower(s) {
	case "nan":
		return "NaN", nil
	case "infinity", "inf", "+infinity", "+inf":
		return "Infinity", nil
	case "-infinity", "-inf":
		return "-Infinity", nil
	}
	body, neg := strings.CutPrefix(s, "-")
	if !neg {
		body = strings.TrimPrefix(body, "+")
	}
	exp := 0
	if at := strings.IndexAny(body, "eE"); at >= 0 {
		var err error
		if exp, err = strconv.Atoi(body[at+1:]); err != nil || exp > maxNumericDigits || exp < -maxNumericDigits {
			return "", bad()
		}
		body = body[:at]
	}
	whole, frac, _ := strings.Cut(body, ".")
	if whole+frac == "" || strings.Trim(whole+frac, "0123456789") != "" {
		return "", bad()
	}
	if exp > 0 {
		frac += strings.Repeat("0", max(0, exp-len(frac)))
		whole, frac = whole+frac[:exp], frac[exp:]
	}
	if exp < 0 {
		whole = strings.Repeat("0", max(0, -exp-len(whole))) + whole
		cut := len(whole) + exp
		whole, frac = whole[:cut], whole[cut:]+frac
	}
	whole = strings.TrimLeft(whole, "0")
	if whole == "" {
		whole = "0"
	}
	if frac != "" {
		whole += "." + frac
	}
	if neg && strings.Trim(whole, "0.") != "" {
		whole = "-" + whole
	}
	return whole, nil
}

// unscaled returns the digits of a canonical number at the given scale, and whether that is exact.
func unscaled(canonical string, scale int32) (string, bool) {
	whole, frac, _ := strings.Cut(canonical, ".")
	if scale < 0 {
		keep := len(whole) + int(scale)
		if whole == "0" && strings.Trim(frac, "0") == "" {
			return "0", true
		}
		if strings.Trim(frac, "0") != "" || keep < 0 || strings.Trim(whole[keep:], "0-") != "" {
			return "", false
		}
		return whole[:keep], true
	}
	if len(frac) > int(scale) {
		if strings.Trim(frac[scale:], "0") != "" {
			return "", false
		}
		frac = frac[:scale]
	}
	return whole + frac + strings.Repeat("0", int(scale)-len(frac)), true
}

func parseDecimal(s string, precision, scale int32) (string, error) {
	c, err := CanonicalNumeric(s)
	if err != nil {
		return "", err
	}
	digits, exact := unscaled(c, scale)
	significant := strings.TrimLeft(strings.TrimPrefix(digits, "-"), "0")
	if !exact || strings.ContainsAny(digits, "NI") || len(significant) > int(precision) {
		return "", fmt.Errorf("%q does not fit decimal(%d,%d) exactly", s, precision, scale)
	}
	return digits, nil
}

func parseScalar(b array.Builder, s string) error {
	switch b := b.(type) {
	case *array.Int8Builder:
		return parseInt(s, 8, func(v int64) { b.Append(int8(v)) })
	case *array.Int16Builder:
		return parseInt(s, 16, func(v int64) { b.Append(int16(v)) })
	case *array.Int32Builder:
		return parseInt(s, 32, func(v int64) { b.Append(int32(v)) })
	case *array.Int64Builder:
		return parseInt(s, 64, b.Append)
	case *array.Uint8Builder:
		return parseUint(s, 8, func(v uint64) { b.Append(uint8(v)) })
	case *array.Uint16Builder:
		return parseUint(s, 16, func(v uint64) { b.Append(uint16(v)) })
	case *array.Uint32Builder:
		return parseUint(s, 32, func(v uint64) { b.Append(uint32(v)) })
	case *array.Uint64Builder:
		return parseUint(s, 64, b.Append)
	case *array.Float32Builder:
		return parseFloat(s, 32, func(v float64) { b.Append(float32(v)) })
	case *array.Float64Builder:
		return parseFloat(s, 64, b.Append)
	case *array.Decimal128Builder:
		return parseDecimal128(b, s)
	case *array.Decimal256Builder:
		return parseDecimal256(b, s)
	default:
		return parseTemporal(b, s)
	}
}

func parseInt(s string, bits int, add func(int64)) error {
	v, err := strconv.ParseInt(s, 10, bits)
	if err != nil {
		return numberError(s, err, "int", bits)
	}
	add(v)
	return nil
}

func parseUint(s string, bits int, add func(uint64)) error {
	v, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		return numberError(s, err, "uint", bits)
	}
	add(v)
	return nil
}

func numberError(s string, err error, name string, bits int) error {
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s is out of the range of %s%d", s, name, bits)
	}
	return fmt.Errorf("%q is no whole number", s)
}

func parseFloat(s string, bits int, add func(float64)) error {
	v, err := strconv.ParseFloat(s, bits)
	if err != nil || strings.ContainsAny(s, "xX_") {
		return fmt.Errorf("%q is no number of float%d", s, bits)
	}
	if v == 0 && strings.ContainsAny(s, "123456789") {
		if mantissa, _, _ := strings.Cut(strings.ToLower(s), "e"); strings.ContainsAny(mantissa, "123456789") {
			return fmt.Errorf("%q is too small for float%d: it would become zero", s, bits)
		}
	}
	add(v)
	return nil
}

func parseDecimal128(b *array.Decimal128Builder, s string) error {
	t := b.Type().(*arrow.Decimal128Type) //nolint:forcetypeassert // by construction
	digits, err := parseDecimal(s, t.Precision, t.Scale)
	if err != nil {
		return err
	}
	if v, err := strconv.ParseInt(digits, 10, 64); err == nil {
		b.Append(decimal128.FromI64(v))
		return nil
	}
	n, err := decimal128.FromString(digits, t.Precision, 0)
	if err != nil {
		return fmt.Errorf("%q does not fit %s: %w", s, t, err)
	}
	b.Append(n)
	return nil
}

func parseDecimal256(b *array.Decimal256Builder, s string) error {
	t := b.Type().(*arrow.Decimal256Type) //nolint:forcetypeassert // by construction
	digits, err := parseDecimal(s, t.Precision, t.Scale)
	if err != nil {
		return err
	}
	n, err := decimal256.FromString(digits, t.Precision, 0)
	if err != nil {
		return fmt.Errorf("%q does not fit %s: %w", s, t, err)
	}
	b.Append(n)
	return nil
}

func parseTemporal(b array.Builder, s string) error {
	switch b := b.(type) {
	case *array.Date32Builder:
		days, err := parseDate32(s)
		if err != nil {
			return err
		}
		b.Append(arrow.Date32(days))
	case *array.Time32Builder:
		v, err := ParseTime(s, b.Type().(*arrow.Time32Type).Unit) //nolint:forcetypeassert // by construction
		if err != nil {
			return err
		}
		b.Append(arrow.Time32(v))
	case *array.Time64Builder:
		v, err := ParseTime(s, b.Type().(*arrow.Time64Type).Unit) //nolint:forcetypeassert // by construction
		if err != nil {
			return err
		}
		b.Append(arrow.Time64(v))
	case *array.TimestampBuilder:
		v, err := parseTimestamp(b, s)
		if err != nil {
			return err
		}
		b.Append(arrow.Timestamp(v))
	case *array.DurationBuilder:
		v, err := parseDuration(s, b.Type().(*arrow.DurationType).Unit) //nolint:forcetypeassert // by construction
		if err != nil {
			return err
		}
		b.Append(arrow.Duration(v))
	default:
		return fmt.Errorf("reading text as %s is not supported", b.Type())
	}
	return nil
}

func parseDate32(s string) (int32, error) {
	days, err := ParseDate(s)
	if err == nil && days != int64(int32(days)) {
		err = fmt.Errorf("date %q is out of the range of 32-bit days since 1970", s)
	}
	return int32(days), err
}

func parseTimestamp(b *array.TimestampBuilder, s string) (int64, error) {
	t := b.Type().(*arrow.TimestampType) //nolint:forcetypeassert // by construction
	v, zoned, err := ParseTimestamp(s, t.Unit)
	if err == nil && zoned != (t.TimeZone != "") {
		err = fmt.Errorf("timestamp %q: a zone is given and the column is zone-less, or the other way round", s)
	}
	return v, err
}

func parseDuration(s string, u arrow.TimeUnit) (int64, error) {
	bad := fmt.Errorf("%q is no duration in %s: want ISO 8601 such as PT1H2M3.5S", s, u)
	body, neg := strings.CutPrefix(s, "-")
	body, ok := strings.CutPrefix(body, "PT")
	if !ok || body == "" {
		return 0, bad
	}
	per, digits := unitsPerSecond(u)
	total := int64(0)
	for _, unit := range []struct {
		suffix  string
		seconds int64
	}{{"H", 3600}, {"M", 60}, {"S", 1}} {
		num, rest, found := strings.Cut(body, unit.suffix)
		if !found {
			continue
		}
		body = rest
		num, minus := strings.CutPrefix(num, "-")
		whole, frac, hasFrac := strings.Cut(num, ".")
		n, err := parseDigits(whole)
		f, errF := parseFraction(frac, digits)
		if err != nil || errF != nil || (hasFrac && unit.seconds != 1) {
			return 0, bad
		}
		if neg != minus {
			n, f = -n, -f
		}
		if total, ok = addChecked(n, unit.seconds*per, total+f); !ok {
			return 0, bad
		}
	}
	if body != "" {
		return 0, bad
	}
	return total, nil
}
