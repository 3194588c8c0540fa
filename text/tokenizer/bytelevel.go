package tokenizer

import "strings"

// Byte-level vocabularies write each byte as one printable character: itself when it is printable in Latin-1,
// else the next free character from U+0100 on (Radford et al. 2019, GPT-2).
var (
	byteChar  = makeByteChars()     // byte -> its character
	charBytes = invert(byteChar[:]) // character -> its byte
)

func makeByteChars() [256]string {
	var chars [256]string
	next := rune(0x100)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			chars[b] = string(rune(b))
			continue
		}
		chars[b] = string(next)
		next++
	}
	return chars
}

func invert(chars []string) map[rune]byte {
	m := make(map[rune]byte, len(chars))
	for b, c := range chars {
		m[[]rune(c)[0]] = byte(b)
	}
	return m
}

// byteLevelBytes returns the bytes that a token represents; ok is false if one of its characters represents no byte.
func byteLevelBytes(token string) (b []byte, ok bool) {
	b = make([]byte, 0, len(token))
	for _, r := range token {
		c, ok := charBytes[r]
		if !ok {
			return nil, false
		}
		b = append(b, c)
	}
	return b, true
}

// byteLevelText writes every byte of p as its character.
func byteLevelText(p piece) piece {
	p.work.room(len(p.s))
	if p.at == nil {
		var b strings.Builder
		b.Grow(len(p.s) * 5 / 4)
		for i := range len(p.s) {
			b.WriteString(byteChar[p.s[i]])
		}
		return piece{s: b.String(), first: p.first, work: p.work}
	}
	w := newRewriter(p)
	for i := range len(p.s) {
		w.put(byteChar[p.s[i]], i)
	}
	return w.piece()
}
