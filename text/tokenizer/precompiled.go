package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// precompiled is the Precompiled normaliser: the replacement table of a SentencePiece model. Like SentencePiece, it
// looks up a grapheme cluster of less than six bytes as a whole. For a longer one, or if the cluster is not found, it
// looks up each code point.
type precompiled struct {
	units []uint32           // a double array of byte strings (Aoe 1989, in the layout of darts-clone)
	texts string             // replacements, each ended by a zero byte
	ascii [utf8.RuneSelf]int // by character: 1 + the offset of its replacement, 0 = none
}

// parsePrecompiled parses the table: the size of the double array in bytes, the array, the replacements.
func parsePrecompiled(encoded string) (*precompiled, error) {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("precompiled_charsmap: %w", err)
	}
	if len(raw) < 4 {
		return nil, fmt.Errorf("precompiled_charsmap: %d bytes are too few for a table", len(raw))
	}
	size := binary.LittleEndian.Uint32(raw)
	raw = raw[4:]
	if size%4 != 0 || uint64(size) > uint64(len(raw)) {
		return nil, fmt.Errorf("precompiled_charsmap: it says that its array has %d bytes, of %d that follow", size, len(raw))
	}
	t := &precompiled{units: make([]uint32, size/4), texts: string(raw[size:])}
	for i := range t.units {
		t.units[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	if !utf8.ValidString(t.texts) {
		return nil, fmt.Errorf("precompiled_charsmap: its replacements are not UTF-8")
	}
	for c := range t.ascii {
		if at, ok := t.find(string(rune(c))); ok {
			t.ascii[c] = 1 + at
		}
	}
	return t, nil
}

// find returns the offset of the replacement of the shortest entry that s begins with. The reference also takes the
// shortest entry, whatever follows.
func (t *precompiled) find(s string) (at int, ok bool) {
	if len(t.units) == 0 {
		return 0, false
	}
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	node := offset(t.units[0])
	for i := 0; i < len(s) && s[i] != 0; i++ {
		node ^= uint32(s[i])
		if uint64(node) >= uint64(len(t.units)) {
			return 0, false
		}
		u := t.units[node]
		if u&(1<<31|0xFF) != uint32(s[i]) {
			return 0, false
		}
		node ^= offset(u)
		if u>>8&1 == 1 {
			if uint64(node) >= uint64(len(t.units)) {
				return 0, false
			}
			at := int(t.units[node] & (1<<31 - 1))
			return at, at <= len(t.texts) && (at == len(t.texts) || utf8.RuneStart(t.texts[at]))
		}
	}
	return 0, false
}

// text returns the replacement at an offset.
func (t *precompiled) text(at int) string {
	s := t.texts[at:]
	if end := strings.IndexByte(s, 0); end >= 0 {
		s = s[:end]
	}
	return s
}

func (t *precompiled) normalize(p piece) piece {
	var done []change
	changed, grown := false, 0
	put := func(old string, at int) {
		changed = true
		text := t.text(at)
		grown += len(text)
		p.work.spend(len(text))
		p.work.room(grown)
		done = replaceChange(done, old, text)
	}
	keep := func(s string) {
		for _, r := range s {
			done = append(done, change{r, 0})
		}
	}
	copied := 0 // number of bytes before the first change; they need no list of changes
	flush := func(i int) {
		if !changed && p.at == nil {
			copied = i
			done = done[:0]
		}
	}
	for i := 0; i < len(p.s); {
		// An ASCII character before another one is a cluster of its own, except \r before \n.
		if c := p.s[i]; c < utf8.RuneSelf && c != '\r' && (i+1 == len(p.s) || p.s[i+1] < utf8.RuneSelf) {
			if at := t.ascii[c]; at > 0 {
				put(p.s[i:i+1], at-1)
			} else if changed || p.at != nil {
				done = append(done, change{rune(c), 0})
			} else {
				copied = i + 1
			}
			i++
			continue
		}
		cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(p.s[i:], -1)
		i += len(cluster)
		if len(cluster) < 6 {
			if at, ok := t.find(cluster); ok {
				put(cluster, at)
				continue
			}
		}
		for k := 0; k < len(cluster); {
			_, n := utf8.DecodeRuneInString(cluster[k:])
			if at, ok := t.find(cluster[k : k+n]); ok {
				put(cluster[k:k+n], at)
			} else {
				keep(cluster[k : k+n])
			}
			k += n
		}
		flush(i)
	}
	if !changed {
		return p
	}
	if p.at == nil {
		var b strings.Builder
		b.Grow(len(p.s))
		b.WriteString(p.s[:copied])
		for _, c := range done {
			b.WriteRune(c.r)
		}
		return piece{s: b.String(), first: p.first, work: p.work}
	}
	return applyChanges(p, done)
}
