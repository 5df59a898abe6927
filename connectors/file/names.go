package file

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/leatdata/leat/record"
)

const (
	partMark  = "~"  // stands between a dataset's name and the run that appended a file
	clashMark = "~~" // stands between a name and the hash that tells it from another
	maxStem   = 150  // bytes of a file's name before its ending: file systems take 255, the temporary name and endings need some
	hashBytes = 4
)

// stem makes a file name of a dataset's name. Distinct names have distinct stems, and [datasetName] finds the name again unless it was
// too long. Letters of any script, digits, dot, minus and underscore stand for themselves; everything else is %XX.
func stem(dataset string) string {
	var b strings.Builder
	for i, r := range dataset {
		edge := i == 0 || i == len(dataset)-1
		switch {
		case r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)), r == '-', (r == '.' || r == '_') && !edge:
			b.WriteRune(r)
		default:
			for _, c := range []byte(dataset[i : i+runeWidth(dataset[i:])]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
	}
	out := b.String()
	if reserved(out) {
		out = fmt.Sprintf("%%%02X", out[0]) + out[1:]
	}
	if len(out) > maxStem {
		cut := maxStem - len(clashMark) - 2*hashBytes
		for !utf8.RuneStart(out[cut]) || strings.ContainsRune(out[cut-2:cut], '%') {
			cut--
		}
		out = out[:cut] + clashMark + short(dataset)
	}
	return out
}

func runeWidth(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:hashBytes])
}

// reserved are names that Windows gives to devices.
func reserved(stem string) bool {
	name, _, _ := strings.Cut(strings.ToLower(stem), ".")
	if slices.Contains([]string{"con", "prn", "aux", "nul"}, name) {
		return true
	}
	return len(name) == 4 && (strings.HasPrefix(name, "com") || strings.HasPrefix(name, "lpt")) && name[3] >= '0' && name[3] <= '9'
}

// datasetName finds the dataset's name in the name of a file that a sink wrote to its folder.
func datasetName(file string) string {
	s, _, _ := named(file)
	s, _, _ = strings.Cut(s, partMark)
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	name := b.String()
	if name == "" || !utf8.ValidString(name) {
		name = s
	}
	if record.JoinName(record.SplitName(name)...) == name {
		return name // perhaps of several parts, as public.orders
	}
	return record.JoinName(name)
}

// stems gives each dataset its stem. Names that differ only by case get a hash, but for the one that is all lower case: their files must
// not meet on a file system that takes both for the same.
func stems(datasets []string) map[string]string {
	groups := map[string]int{}
	for _, d := range datasets {
		groups[strings.ToLower(stem(d))]++
	}
	out := make(map[string]string, len(datasets))
	for _, d := range datasets {
		s := stem(d)
		if groups[strings.ToLower(s)] > 1 && s != strings.ToLower(s) {
			s += clashMark + short(d)
		}
		out[d] = s
	}
	return out
}
