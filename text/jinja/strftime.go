package jinja

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// strftime evaluates Python's datetime.strftime in the C locale, with glibc's flags.
func strftime(st *state, t time.Time, layout string) string {
	st.step(len(layout))
	st.charge(2 * len(layout))
	var b strings.Builder
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			b.WriteByte(layout[i])
			continue
		}
		start := i
		i++
		flag, width := byte(0), 0
		upcase, swap := false, false
		for ; i < len(layout) && strings.IndexByte("_-0^#", layout[i]) >= 0; i++ {
			switch layout[i] {
			case '^':
				upcase = true
			case '#':
				swap = true
			default:
				flag = layout[i]
			}
		}
		for ; i < len(layout) && isDecimal(layout[i]); i++ {
			if width = width*10 + int(layout[i]-'0'); width > 1024 {
				raise("LimitError", "a width of strftime_now is more than 1024")
			}
		}
		if i < len(layout) && (layout[i] == 'E' || layout[i] == 'O') {
			i++
		}
		if i >= len(layout) {
			b.WriteString(layout[start:])
			break
		}
		s, ok := timeField(st, t, layout[i], flag, width)
		if !ok {
			_, n := utf8.DecodeRuneInString(layout[i:])
			s = layout[start : i+n]
			i += n - 1
		} else if upcase || swap && strings.IndexByte("aAbBh", layout[i]) >= 0 {
			s = strings.ToUpper(s)
		} else if swap && (layout[i] == 'p' || layout[i] == 'Z') {
			s = strings.ToLower(s)
		}
		st.step(16)
		st.grow(b.Len(), len(s))
		b.WriteString(s)
	}
	return b.String()
}

func timeField(st *state, t time.Time, c, flag byte, width int) (string, bool) {
	number := func(n, digits int, fill byte) (string, bool) {
		switch flag {
		case '-':
			return fmt.Sprint(n), true
		case '_':
			fill = ' '
		case '0':
			fill = '0'
		}
		if width > 0 {
			digits = width
		}
		s := fmt.Sprint(n)
		return strings.Repeat(string(fill), max(digits-len(s), 0)) + s, true
	}
	word := func(s string) (string, bool) {
		fill := " "
		if flag == '0' {
			fill = "0"
		}
		return strings.Repeat(fill, max(width-len(s), 0)) + s, true
	}
	sub := func(layout string) (string, bool) { return word(strftime(st, t, layout)) }
	hour12 := (t.Hour()+11)%12 + 1
	isoYear, isoWeek := t.ISOWeek()
	sunday := int(t.Weekday())
	monday := (sunday + 6) % 7
	half := "AM"
	if t.Hour() >= 12 {
		half = "PM"
	}
	switch c {
	case 'a':
		return word(t.Weekday().String()[:3])
	case 'A':
		return word(t.Weekday().String())
	case 'b', 'h':
		return word(t.Month().String()[:3])
	case 'B':
		return word(t.Month().String())
	case 'c':
		return sub("%a %b %e %H:%M:%S %Y")
	case 'C':
		return number(t.Year()/100, 2, '0')
	case 'd':
		return number(t.Day(), 2, '0')
	case 'D', 'x':
		return sub("%m/%d/%y")
	case 'e':
		return number(t.Day(), 2, ' ')
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), flag == 0 && width == 0
	case 'F':
		return sub("%Y-%m-%d")
	case 'g':
		return number(isoYear%100, 2, '0')
	case 'G':
		return number(isoYear, 4, '0')
	case 'H':
		return number(t.Hour(), 2, '0')
	case 'I':
		return number(hour12, 2, '0')
	case 'j':
		return number(t.YearDay(), 3, '0')
	case 'k':
		return number(t.Hour(), 2, ' ')
	case 'l':
		return number(hour12, 2, ' ')
	case 'm':
		return number(int(t.Month()), 2, '0')
	case 'M':
		return number(t.Minute(), 2, '0')
	case 'n':
		return "\n", true
	case 'p':
		return word(half)
	case 'P':
		return word(strings.ToLower(half))
	case 'r':
		return sub("%I:%M:%S %p")
	case 'R':
		return sub("%H:%M")
	case 's':
		return number(int(t.Unix()), 1, '0')
	case 'S':
		return number(t.Second(), 2, '0')
	case 't':
		return "\t", true
	case 'T', 'X':
		return sub("%H:%M:%S")
	case 'u':
		return number(monday+1, 1, '0')
	case 'U':
		return number((t.YearDay()+6-sunday)/7, 2, '0')
	case 'V':
		return number(isoWeek, 2, '0')
	case 'w':
		return number(sunday, 1, '0')
	case 'W':
		return number((t.YearDay()+6-monday)/7, 2, '0')
	case 'y':
		return number(t.Year()%100, 2, '0')
	case 'Y':
		return number(t.Year(), 1, '0')
	case 'z', 'Z': // empty for a datetime without a time zone
		return "", true
	case '%':
		return "%", true
	}
	return "", false
}
