package session

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

var bytesPattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)$`)

var byteUnits = map[string]float64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// ParseBytes parses a number of bytes such as "256MiB" (2^20), "2 GB" (10^9), "1.5GiB" or "4096".
func ParseBytes(s string) (int64, error) {
	bad := errors.New(`write it like "256MiB", "2GiB" or "2GB"`)
	m := bytesPattern.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, fmt.Errorf("%q is no amount of memory: %w", s, bad)
	}
	unit, ok := byteUnits[strings.ToLower(m[2])]
	if !ok {
		return 0, fmt.Errorf("%q has the unknown unit %q: %w", s, m[2], bad)
	}
	number, err := strconv.ParseFloat(m[1], 64)
	if err != nil || !(number*unit < 1<<62) {
		return 0, fmt.Errorf("%q is too large: %w", s, bad)
	}
	return int64(math.Round(number * unit)), nil
}

// FormatBytes formats a number of bytes for reading: "1.3 GiB".
func FormatBytes(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size || -n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
