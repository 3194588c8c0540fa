package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// thousands separates groups of three digits.
const thousands = ','

// MemoryParts groups a plan's categories into at most as many parts as there are colours. It leaves out negative and
// impossibly large values.
func MemoryParts(categories []Part) []Part {
	order := []string{"frozen weights", "activations", "adapter", "gradients", "optimizer states", "batch and other"}
	sums := map[string]int64{}
	for _, c := range categories {
		if c.Bytes < 0 || c.Bytes > 1<<50 {
			continue
		}
		name := c.Name
		switch {
		case name == "batch" || name == "other" || name == "gradient norms":
			name = order[5]
		case !slices.Contains(order, name):
			name = order[4]
		}
		sums[name] += c.Bytes
	}
	var parts []Part
	for _, name := range order {
		if sums[name] > 0 {
			parts = append(parts, Part{Name: name, Bytes: sums[name]})
		}
	}
	return parts
}

// Number formats a value for reading: four significant digits, commas between thousands, an exponent only if a reader
// would have to count zeros. Whole numbers keep all their digits. NaN and infinities become "not finite".
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "not finite"
	case a >= 1e15 || a > 0 && a < 1e-3:
		s := strconv.FormatFloat(v, 'e', 3, 64)
		mantissa, exponent, _ := strings.Cut(s, "e")
		if strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		n, _ := strconv.Atoi(exponent)
		return mantissa + "e" + strconv.Itoa(n)
	case v == math.Trunc(v) || a >= 999.95:
		return Whole(int64(math.Round(v)))
	default:
		s := strconv.FormatFloat(v, 'f', 3-int(math.Floor(math.Log10(a))), 64)
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
}

// Whole formats a count with commas between its thousands: "3,331".
func Whole(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "−", s[1:]
	}
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteRune(thousands)
		}
		b.WriteRune(c)
	}
	return sign + b.String()
}

// Percent formats a share of 1 as a percentage with one digit after the point: "52.2%".
func Percent(share float64) string {
	if !finite(share) {
		return "not finite"
	}
	return Number(math.Round(1000*share)/10) + "%"
}

// Duration formats a time for reading: "41 s", "3 min 20 s", "2 h 05 min", "3 d 4 h".
func Duration(d time.Duration) string {
	s := d.Seconds()
	switch {
	case s < 0:
		return "not known"
	case s < 1:
		return fmt.Sprintf("%.0f ms", 1000*s)
	case s < 9.95:
		return fmt.Sprintf("%.1f s", s)
	case s < 59.5:
		return fmt.Sprintf("%.0f s", s)
	}
	n := int64(math.Round(s))
	switch {
	case n < 3600:
		return fmt.Sprintf("%d min %02d s", n/60, n%60)
	case n < 24*3600:
		return fmt.Sprintf("%d h %02d min", n/3600, n%3600/60)
	}
	return fmt.Sprintf("%d d %d h", n/86400, n%86400/3600)
}

// PerStep formats the time of a step: "12 ms/step", "3.4 s/step".
func PerStep(d time.Duration) string {
	switch s := d.Seconds(); {
	case s < 0:
		return "not known"
	case s < 0.00995:
		return fmt.Sprintf("%.2g ms/step", 1000*s)
	case s < 0.9995:
		return fmt.Sprintf("%.0f ms/step", 1000*s)
	case s < 9.95:
		return fmt.Sprintf("%.1f s/step", s)
	}
	return Duration(d) + "/step"
}

// plain returns a text on one line without characters that control a display or reorder the text beside them.
func plain(s string) string {
	return strings.Join(strings.Fields(printable(s)), " ")
}

// printable returns a text whose control and direction characters are escaped; line ends and tabs stay.
func printable(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !utf8.ValidString(s[i:min(len(s), i+utf8.UTFMax)]) && s[i] >= utf8.RuneSelf && !strings.HasPrefix(s[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == '\r':
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// short returns a text of at most n characters, without its middle if it is longer.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}
