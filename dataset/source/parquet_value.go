package source

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// appendValue appends a value as JSON: strings, numbers and booleans unchanged, dates and times as ISO 8601, decimals
// with all their digits. Numbers that are not finite become null, and bytes that are not text become base64.
func appendValue(out []byte, n *node, v *values, i int) ([]byte, error) {
	if n.inPieces() {
		return appendPiece(out, n, v.piece(i))
	}
	bits := v.number(i)
	switch n.kind {
	case kindBool:
		return strconv.AppendBool(out, bits != 0), nil
	case kindFloat:
		return appendFloat(out, float64(math.Float32frombits(uint32(bits))), 32), nil
	case kindDouble:
		return appendFloat(out, math.Float64frombits(bits), 64), nil
	}
	whole := int64(bits)
	if n.kind == kindInt32 {
		whole = int64(int32(bits))
	}
	switch n.means {
	case isUnsigned:
		if n.kind == kindInt32 {
			bits = uint64(uint32(bits))
		}
		return strconv.AppendUint(out, bits, 10), nil
	case isDecimal:
		return appendDecimal(out, big.NewInt(whole), n.scale), nil
	case isDate:
		return append(append(append(out, '"'),
			time.Unix(0, 0).UTC().AddDate(0, 0, int(int32(whole))).Format("2006-01-02")...), '"'), nil
	case isTimestamp:
		return appendTime(out, whole, n.unit, "2006-01-02T15:04:05", n.utc), nil
	case isTime:
		return appendTime(out, whole, n.unit, "15:04:05", false), nil
	}
	return strconv.AppendInt(out, whole, 10), nil
}

func appendPiece(out []byte, n *node, b []byte) ([]byte, error) {
	switch {
	case n.kind == kindInt96:
		days := int64(binary.LittleEndian.Uint32(b[8:])) - 2440588 // Julian day of 1970-01-01
		t := time.Unix(days*86400, 0).UTC().Add(time.Duration(binary.LittleEndian.Uint64(b)))
		return appendMoment(out, t, "2006-01-02T15:04:05", 9, false), nil
	case n.means == isDecimal:
		if len(b) > 64 {
			return append(out, "null"...), fmt.Errorf("column %q has a decimal of %d bytes, at most 64 are read",
				n.path(), len(b))
		}
		x := new(big.Int).SetBytes(b)
		if len(b) > 0 && b[0]&0x80 != 0 {
			x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		return appendDecimal(out, x, n.scale), nil
	case n.means == isUUID && len(b) == 16:
		h := hex.EncodeToString(b)
		return append(out, `"`+strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")+`"`...), nil
	case n.means == isFloat16 && len(b) == 2:
		return appendFloat(out, float16(binary.LittleEndian.Uint16(b)), 32), nil
	}
	if n.means == holdsJSON {
		return appendJSON(out, n.path(), b)
	}
	if utf8.Valid(b) && n.means != isBinary {
		return appendString(out, b), nil
	}
	if n.means == isText {
		return append(out, "null"...), notUTF8(n.path(), b)
	}
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, b)
	return append(out, '"'), nil
}

// notUTF8 returns the error for a column's text that is not UTF-8; it names the first invalid byte.
func notUTF8(column string, b []byte) error {
	at := 0
	for at < len(b) {
		r, size := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return fmt.Errorf("column %q is not UTF-8: byte %d is 0x%02x", column, at+1, b[at])
}

// appendJSON appends a value of a column of type JSON: the value itself, not a string that contains it. An empty text
// is null. Invalid JSON is an error of the row.
func appendJSON(out []byte, column string, b []byte) ([]byte, error) {
	if !utf8.Valid(b) {
		return append(out, "null"...), notUTF8(column, b)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return append(out, "null"...), nil
	}
	if wrong := jsonerr.Check(b); wrong != nil {
		return append(out, "null"...), fmt.Errorf("column %q is of type JSON, and its text is no JSON: byte %d: %s",
			column, wrong.Offset+1, wrong.Text)
	}
	return append(out, b...), nil
}

func appendFloat(out []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(out, "null"...)
	}
	format := byte('g')
	if a := math.Abs(f); a == 0 || a >= 1e-6 && a < 1e21 {
		format = 'f'
	}
	return strconv.AppendFloat(out, f, format, -1, bits)
}

func float16(h uint16) float64 {
	sign, exponent, fraction := float64(1), int(h>>10&31), float64(h&1023)
	if h>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		return math.NaN()
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// maxScale bounds the digits after a decimal point.
const maxScale = 200

func appendDecimal(out []byte, x *big.Int, scale int) []byte {
	digits := new(big.Int).Abs(x).String()
	if scale < 0 || scale > maxScale {
		return append(out, "null"...)
	}
	for len(digits) <= scale {
		digits = "0" + digits
	}
	if x.Sign() < 0 {
		out = append(out, '-')
	}
	out = append(out, digits[:len(digits)-scale]...)
	if scale > 0 {
		out = append(append(out, '.'), digits[len(digits)-scale:]...)
	}
	return out
}

// appendTime appends a time; digits is its unit as digits of a second.
func appendTime(out []byte, count int64, digits int, layout string, utc bool) []byte {
	per := int64(1)
	for range digits {
		per *= 10
	}
	seconds, part := count/per, count%per
	if part < 0 {
		seconds, part = seconds-1, part+per
	}
	return appendMoment(out, time.Unix(seconds, part*(1e9/per)).UTC(), layout, digits, utc)
}

func appendMoment(out []byte, t time.Time, layout string, digits int, utc bool) []byte {
	if t.Nanosecond() != 0 && digits > 0 {
		layout += "." + strings.Repeat("0", digits)
	}
	out = t.AppendFormat(append(out, '"'), layout)
	if utc {
		out = append(out, 'Z')
	}
	return append(out, '"')
}
