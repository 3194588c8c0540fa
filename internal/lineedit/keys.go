package lineedit

import (
	"bytes"
	"unicode/utf8"
)

// key is what was pressed; typed is text.
type key int

const (
	none key = iota
	typed
	enter
	left
	right
	wordLeft
	wordRight
	up
	down
	home
	end
	backspace
	deleteKey
	wordBack
	cutBefore
	cutAfter
	cutAll
	clear
	ctrlD
)

// controls are the keys of one byte.
var controls = map[byte]key{1: home, 2: left, 3: cutAll, 4: ctrlD, 5: end, 6: right, 8: backspace, 10: enter,
	11: cutAfter, 12: clear, 13: enter, 14: down,
	16: up, 21: cutBefore, 23: wordBack, 127: backspace}

// sequences are what terminals send behind ESC.
var sequences = map[string]key{"[A": up, "[B": down, "[C": right, "[D": left, "OA": up, "OB": down, "OC": right,
	"OD": left, "[H": home, "[F": end, "OH": home,
	"OF": end, "[1~": home, "[4~": end, "[7~": home, "[8~": end, "[3~": deleteKey, "[1;5C": wordRight,
	"[1;5D": wordLeft, "[1;3C": wordRight, "[1;3D": wordLeft,
	"b": wordLeft, "f": wordRight, "\x7f": wordBack, "\b": wordBack}

const (
	pasteBegins = "[200~"
	pasteEnds   = "\x1b[201~"
	maxSequence = 32 // bytes of one that is waited for
)

// next is the key that pending begins with, and its bytes; 0 = more have to come.
func (e *Editor) next() (k key, text string, n int) {
	p := e.pending
	switch {
	case len(p) == 0:
		return none, "", 0
	case e.pasting:
		return e.pasted()
	case p[0] == 0x1b:
		return e.sequence()
	case p[0] < 0x20 || p[0] == 0x7f:
		return controls[p[0]], "", 1
	}
	for n < len(p) && p[n] >= 0x20 && p[n] != 0x7f && utf8.FullRune(p[n:]) {
		_, size := utf8.DecodeRune(p[n:])
		n += size
	}
	return typed, printable(p[:n]), n
}

// pasted is text up to the end of what is pasted, in which Enter is a line break.
func (e *Editor) pasted() (k key, text string, n int) {
	p := e.pending
	if i := bytes.Index(p, []byte(pasteEnds)); i == 0 {
		e.pasting = false
		return none, "", len(pasteEnds)
	} else if i > 0 {
		return typed, printable(p[:i]), i
	}
	n = len(p)
	// what may be the beginning of the end waits, and half a character, and half a line break
	for i := max(0, n-len(pasteEnds)); i < n; i++ {
		if bytes.HasPrefix([]byte(pasteEnds), p[i:]) || !utf8.FullRune(p[i:]) || i == n-1 && p[i] == '\r' {
			n = i
		}
	}
	return typed, printable(p[:n]), n
}

// sequence is what follows ESC: a letter, or a bracket with parameters and a last byte.
func (e *Editor) sequence() (k key, text string, n int) {
	p := e.pending
	if len(p) < 2 {
		return none, "", 0
	}
	n = 2
	if p[1] == '[' || p[1] == 'O' {
		for n = 3; ; n++ {
			if n > len(p) {
				if len(p) > maxSequence {
					return none, "", len(p)
				}
				return none, "", 0
			}
			if c := p[n-1]; c >= 0x40 && c <= 0x7e {
				break
			}
		}
	}
	if string(p[1:n]) == pasteBegins {
		e.pasting = true
	}
	return sequences[string(p[1:n])], "", n
}
