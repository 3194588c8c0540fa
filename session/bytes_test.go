package session

import "testing"

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"256MiB": 256 << 20, "2GB": 2e9, "2 GiB": 2 << 30, "1.5GiB": 3 << 29, "4096": 4096, "0": 0, "10b": 10, "1 kib": 1024, "1KB": 1000, "1TiB": 1 << 40,
	} {
		if got, err := ParseBytes(s); got != want || err != nil {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "MiB", "-1MiB", "1e9", "256M", "1.MiB", "1  GiB", "99999999999TiB", "1 2", "NaN", "0x10"} {
		if got, err := ParseBytes(s); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", s, got)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 256 << 20: "256.0 MiB", 3 << 29: "1.5 GiB", -2048: "-2.0 KiB", 5 << 40: "5.0 TiB"} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %q, want %q", n, got, want)
		}
	}
}
