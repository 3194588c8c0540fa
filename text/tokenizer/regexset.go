package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// runeSet is a set of code points as ascending, disjoint ranges.
type runeSet [][2]rune

const maxRune = unicode.MaxRune

func setOf(tables ...*unicode.RangeTable) runeSet {
	var s runeSet
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			s = append(s, [2]rune{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			s = append(s, [2]rune{r, r})
		}
	}
	for _, t := range tables {
		for _, r := range t.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return s.tidy()
}

// tidy sorts the ranges and joins adjacent ones.
func (s runeSet) tidy() runeSet {
	slices.SortFunc(s, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	out := s[:0]
	for _, r := range s {
		if n := len(out); n > 0 && r[0] <= out[n-1][1]+1 {
			out[n-1][1] = max(out[n-1][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}

func (s runeSet) or(t runeSet) runeSet { return append(slices.Clone(s), t...).tidy() }

func (s runeSet) not() runeSet {
	var out runeSet
	from := rune(0)
	for _, r := range s {
		if r[0] > from {
			out = append(out, [2]rune{from, r[0] - 1})
		}
		from = r[1] + 1
	}
	if from <= maxRune {
		out = append(out, [2]rune{from, maxRune})
	}
	return out
}

func (s runeSet) and(t runeSet) runeSet { return s.not().or(t.not()).not() }

// anyCase adds the code points that differ from a member only in case.
func (s runeSet) anyCase() runeSet {
	out := slices.Clone(s)
	for _, pairs := range foldPairs() {
		for _, r := range pairs {
			if s.has(r) {
				for _, other := range pairs {
					out = append(out, [2]rune{other, other})
				}
				break
			}
		}
	}
	return out.tidy()
}

// foldPairs returns the groups of code points that are equal without case.
var foldPairs = sync.OnceValue(func() (groups [][]rune) {
	for _, r := range setOf(unicode.L, unicode.M, unicode.Nl, unicode.So) {
		for c := r[0]; c <= r[1]; c++ {
			next := unicode.SimpleFold(c)
			if next <= c { // each group once, at its smallest member
				continue
			}
			group := []rune{c}
			for ; next != c; next = unicode.SimpleFold(next) {
				if next < c {
					group = nil
					break
				}
				group = append(group, next)
			}
			if group != nil {
				groups = append(groups, group)
			}
		}
	}
	return groups
})

func (s runeSet) has(r rune) bool {
	_, ok := slices.BinarySearchFunc(s, r, func(x [2]rune, r rune) int {
		switch {
		case x[1] < r:
			return -1
		case x[0] > r:
			return 1
		}
		return 0
	})
	return ok
}

// fastSet is a runeSet with a bit for each code point below 0x10000.
type fastSet struct {
	low    [1 << 10]uint64
	high   runeSet
	beyond bool // the set has code points above ASCII
}

func (s runeSet) fast() *fastSet {
	f := &fastSet{beyond: len(s) > 0 && s[len(s)-1][1] > unicode.MaxASCII}
	for _, r := range s {
		for c := r[0]; c <= min(r[1], 0xFFFF); c++ {
			f.low[c>>6] |= 1 << (c & 63)
		}
		if r[1] > 0xFFFF {
			f.high = append(f.high, [2]rune{max(r[0], 0x10000), r[1]})
		}
	}
	return f
}

func (f *fastSet) has(r rune) bool {
	if uint32(r) < 0x10000 {
		return f.low[r>>6]>>(r&63)&1 == 1
	}
	return f.high.has(r)
}

// What \s, \d, \w, \h and the POSIX names mean in tokenizer files: Oniguruma's tables, which are Unicode's.
var (
	spaceSet = sync.OnceValue(func() runeSet { return setOf(unicode.White_Space) })
	digitSet = sync.OnceValue(func() runeSet { return category("Nd") })
	alphaSet = sync.OnceValue(func() runeSet {
		marks := runeSet{{0x363, 0x36F}, {0x897, 0x897}, {0x1DD3, 0x1DE6}, {0x10D69, 0x10D69}, {0x10EFC, 0x10EFC}, {0x113B8, 0x113CD}, {0x1611E, 0x1612E}}
		return category("L").or(setOf(unicode.Nl, unicode.Other_Alphabetic)).or(marks.and(category("M")))
	})
	posixWord = sync.OnceValue(func() runeSet { return alphaSet().or(category("M")).or(digitSet()).or(setOf(unicode.Pc)) })
	// Oniguruma's \w includes the numbers of Latin-1, its [[:word:]] does not.
	wordSet   = sync.OnceValue(func() runeSet { return posixWord().or(runeSet{{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}}) })
	wordTable = sync.OnceValue(func() *fastSet { return wordSet().fast() })
	graphSet  = sync.OnceValue(func() runeSet { return category("C").and(setOf(unicode.Cf, unicode.Co).not()).or(spaceSet()).not() })
	hexSet    = func() runeSet { return runeSet{{'0', '9'}, {'A', 'F'}, {'a', 'f'}} }
)

// shorthands maps the lower-case escapes to their sets; the upper-case escape is the complement.
var shorthands = map[rune]func() runeSet{'s': spaceSet, 'd': digitSet, 'w': wordSet, 'h': hexSet}

// posixSets maps the names between [: and :], which \p accepts too.
var posixSets = map[string]func() runeSet{
	"alpha": alphaSet, "digit": digitSet, "space": spaceSet, "xdigit": hexSet, "word": posixWord, "alphabetic": alphaSet, "graph": graphSet,
	"alnum": func() runeSet { return alphaSet().or(digitSet()) },
	"print": func() runeSet { return graphSet().or(setOf(unicode.Zs)) },
	"upper": func() runeSet { return category("Lu").or(setOf(unicode.Other_Uppercase)) },
	"lower": func() runeSet { return category("Ll").or(setOf(unicode.Other_Lowercase)) },
	"blank": func() runeSet { return setOf(unicode.Zs).or(runeSet{{'\t', '\t'}}) },
	"cntrl": func() runeSet { return setOf(unicode.Cc) },
	"ascii": func() runeSet { return runeSet{{0, unicode.MaxASCII}} },
	"any":   func() runeSet { return runeSet{{0, maxRune}} },
	"punct": func() runeSet {
		return category("P").or(category("S"))
	},
}

// property returns the set that \p{name} names.
func property(name string) (runeSet, error) {
	fold := func(s string) string {
		return strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "").Replace(s))
	}
	bare, negated := strings.CutPrefix(name, "^")
	key := fold(bare)
	var found runeSet
	posix, ok := posixSets[key]
	if ok {
		found = posix()
	}
	for n := range unicode.Categories {
		if !ok && fold(n) == key {
			found, ok = category(n), true
		}
	}
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Scripts, unicode.Properties} {
		for n, t := range tables {
			if !ok && fold(n) == key {
				found, ok = setOf(t), true
			}
		}
	}
	switch key {
	case "han":
		found = found.or(runeSet{{0x2EBF0, 0x2EE5D}})
	case "latin":
		found = found.or(runeSet{{0xA7CB, 0xA7CD}, {0xA7DA, 0xA7DC}})
	}
	if long, is := longCategories[key]; is && !ok {
		found, ok = category(long), true
	}
	switch {
	case !ok:
		return nil, fmt.Errorf("unknown property %q", name)
	case negated:
		return found.not(), nil
	}
	return found, nil
}

var longCategories = map[string]string{
	"letter": "L", "uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt", "modifierletter": "Lm", "otherletter": "Lo",
	"mark": "M", "nonspacingmark": "Mn", "spacingmark": "Mc", "enclosingmark": "Me", "number": "N", "decimalnumber": "Nd",
	"letternumber": "Nl", "othernumber": "No", "punctuation": "P", "symbol": "S", "mathsymbol": "Sm", "currencysymbol": "Sc",
	"modifiersymbol": "Sk", "othersymbol": "So", "separator": "Z", "spaceseparator": "Zs", "other": "C", "control": "Cc", "format": "Cf",
}
