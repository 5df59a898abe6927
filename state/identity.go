package state

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// IdentityHash returns the SHA-256 of an identity's canonical form, in hex: for each name in byte order the name and its value, each
// as its length in bytes, a colon and the bytes.
func IdentityHash(identity map[string]string) string {
	var b []byte
	part := func(s string) {
		b = strconv.AppendInt(b, int64(len(s)), 10)
		b = append(append(b, ':'), s...)
	}
	for _, k := range slices.Sorted(maps.Keys(identity)) {
		part(k)
		part(identity[k])
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ExplainIdentity says what changed between the identity that was saved and the one of today, a sentence for each difference, in
// order of the names; none where they are equal.
func ExplainIdentity(saved, today map[string]string) []string {
	names := maps.Clone(saved)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, today)
	var changes []string
	for _, k := range slices.Sorted(maps.Keys(names)) {
		was, before := saved[k]
		is, now := today[k]
		switch {
		case !before:
			changes = append(changes, fmt.Sprintf("%s is new: %s", k, shorten(is)))
		case !now:
			changes = append(changes, fmt.Sprintf("%s is gone; it was %s", k, shorten(was)))
		case was != is:
			changes = append(changes, fmt.Sprintf("%s was %s and is now %s", k, shorten(was), shorten(is)))
		}
	}
	return changes
}

// shorten quotes a value and keeps a long one readable; the hash tells apart two that begin alike.
func shorten(s string) string {
	const most = 120
	if len(s) <= most {
		return strconv.Quote(s)
	}
	sum := sha256.Sum256([]byte(s))
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%q… (%d bytes, %x)", s[:cut], len(s), sum[:4])
}

// FirstVersion returns the version of a record that a store creates: random in the upper half, so that a version from before a
// Delete never fits a record that was created after it. Later versions count up.
func FirstVersion() Version {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never returns an error
	return Version(binary.LittleEndian.Uint32(b[:])>>1)<<32 | 1
}
