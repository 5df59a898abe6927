package mysql

import "testing"

// case C055: what the server says of transactions on their way, with sources that nothing divides, tags, and sessions in front of digits.
func TestParseOwned(t *testing.T) {
	t.Parallel()
	const a, b = "e7ca562a-ecb5-11f1-8c50-02fc00000001", "37ca562a-ecb5-11f1-8c50-02fc00000001"
	for text, want := range map[string]string{
		"":                                      "",
		a + ":40#17":                            a + ":40",
		a + ":40#17:42#18":                      a + ":40:42",
		a + ":40#17" + a + ":leat:41#18":        a + ":40:leat:41",
		a + ":40#17" + b + ":5#1":               b + ":5," + a + ":40",
		b + ":x:1#12" + b + ":2#3" + a + ":9#8": b + ":2:x:1," + a + ":9",
	} {
		got, err := parseOwned(text)
		if err != nil || got.String() != want {
			t.Errorf("%q is %s, %v: want %s", text, got, err, want)
		}
	}
}
