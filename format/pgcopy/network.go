package pgcopy

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Address families of inet and cidr, as the server sends them on every platform.
const (
	familyIPv4 = 2
	familyIPv6 = 3
)

// appendNetworkText appends an inet or cidr as the server prints it.
func appendNetworkText(dst, v []byte) ([]byte, error) {
	if len(v) < 4 || len(v) != 4+int(v[3]) {
		return dst, errMalformed
	}
	addr, bits, cidr := v[4:], int(v[1]), v[2] != 0
	switch {
	case v[0] == familyIPv4 && len(addr) == 4 && bits <= 32:
		dst = netip.AddrFrom4([4]byte(addr)).AppendTo(dst)
	case v[0] == familyIPv6 && len(addr) == 16 && bits <= 128:
		dst = appendIPv6(dst, [16]byte(addr))
	default:
		return dst, errMalformed
	}
	if cidr || bits != 8*len(addr) {
		dst = strconv.AppendInt(append(dst, '/'), int64(bits), 10)
	}
	return dst, nil
}

// appendIPv6 differs from netip where the server writes the last 32 bits as an IPv4 address: behind ::, and behind ::ffff.
func appendIPv6(dst []byte, a [16]byte) []byte {
	word := func(i int) uint16 { return binary.BigEndian.Uint16(a[2*i:]) }
	lead := 0
	for lead < 8 && word(lead) == 0 {
		lead++
	}
	tail := netip.AddrFrom4([4]byte(a[12:]))
	switch {
	case lead == 6:
		return tail.AppendTo(append(dst, "::"...))
	case lead == 5 && word(5) == 0xffff:
		return tail.AppendTo(append(dst, "::ffff:"...))
	}
	return netip.AddrFrom16(a).AppendTo(dst)
}

// appendNetwork appends length and value of an inet or cidr.
func appendNetwork(dst []byte, s string, cidr bool) ([]byte, error) {
	host, mask, masked := strings.Cut(s, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" {
		return dst, fmt.Errorf("%q is no network address", shorten(s))
	}
	bits := addr.BitLen()
	if masked {
		if bits, err = strconv.Atoi(mask); err != nil || bits < 0 || bits > addr.BitLen() {
			return dst, fmt.Errorf("%q is no network address", shorten(s))
		}
	}
	if cidr && netip.PrefixFrom(addr, bits).Masked().Addr() != addr {
		return dst, fmt.Errorf("%q is no cidr: bits to the right of the mask are set", shorten(s))
	}
	family := byte(familyIPv6)
	if addr.Is4() {
		family = familyIPv4
	}
	raw, flag := addr.AsSlice(), byte(0)
	if cidr {
		flag = 1
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(4+len(raw)))
	return append(append(dst, family, byte(bits), flag, byte(len(raw))), raw...), nil
}

// appendMACText appends pairs of hex digits with colons.
func appendMACText(dst, v []byte) ([]byte, error) {
	if len(v) != 6 && len(v) != 8 {
		return dst, errMalformed
	}
	for i := range v {
		if i > 0 {
			dst = append(dst, ':')
		}
		dst = hex.AppendEncode(dst, v[i:i+1])
	}
	return dst, nil
}

// appendMAC appends length and value of a macaddr or macaddr8.
func appendMAC(dst []byte, s string) ([]byte, error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil || (len(raw) != 6 && len(raw) != 8) {
		return dst, fmt.Errorf("%q is no MAC address", shorten(s))
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(raw))), raw...), nil
}

// appendBitsText appends the digits of a bit string.
func appendBitsText(dst, v []byte) ([]byte, error) {
	if len(v) < 4 {
		return dst, errMalformed
	}
	n, raw := int(int32(binary.BigEndian.Uint32(v))), v[4:]
	if n < 0 || len(raw) != (n+7)/8 {
		return dst, errMalformed
	}
	for i := range n {
		dst = append(dst, '0'+raw[i/8]>>(7-i%8)&1)
	}
	return dst, nil
}

var errBits = errors.New("a bit string has only the digits 0 and 1")

// appendBits appends length and value of a bit string.
func appendBits(dst []byte, s string) ([]byte, error) {
	size := (len(s) + 7) / 8
	dst = binary.BigEndian.AppendUint32(dst, uint32(4+size))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	at := len(dst)
	dst = append(dst, make([]byte, size)...)
	for i := range len(s) {
		if s[i] != '0' && s[i] != '1' {
			return dst, errBits
		}
		dst[at+i/8] |= (s[i] - '0') << (7 - i%8)
	}
	return dst, nil
}
