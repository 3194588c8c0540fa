package dataset

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escapes maps the letters of JSON's short escapes to characters.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape returns the text of the inside of a valid JSON string, equal to encoding/json's result but in a single pass.
func unescape(raw []byte) string {
	var b strings.Builder
	b.Grow(len(raw))
	for {
		k := bytes.IndexByte(raw, '\\')
		if k < 0 {
			b.Write(raw)
			return b.String()
		}
		b.Write(raw[:k])
		if raw[k+1] != 'u' {
			b.WriteByte(escapes[raw[k+1]])
			raw = raw[k+2:]
			continue
		}
		r := codeUnit(raw[k:])
		raw = raw[k+6:]
		if utf16.IsSurrogate(r) {
			pair := rune(utf8.RuneError)
			if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
				pair = utf16.DecodeRune(r, codeUnit(raw))
			}
			if r = pair; pair != utf8.RuneError {
				raw = raw[6:]
			}
		}
		b.WriteRune(r)
	}
}

// codeUnit decodes the \uXXXX at the start of raw.
func codeUnit(raw []byte) rune {
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return utf8.RuneError // unreachable: the parser has accepted the row
	}
	return rune(n)
}
