package adapter

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2"
	"github.com/tierlora/tierlora/internal/words"
)

// maxShown is the most bytes of a foreign text that an error repeats.
const maxShown = 200

// maxPattern is the longest regular expression in bytes that is read; patternTime is how long one may take on one path.
const (
	maxPattern  = 16 << 10
	patternTime = 250 * time.Millisecond
)

// pattern is a regular expression of adapter_config.json or of the section lora, which are Python's. Go's own engine runs
// what it can read, in linear time; look-ahead, look-behind and back-references take one that backtracks, with a time-out.
type pattern struct {
	text   string
	linear *regexp.Regexp  // nil where Go's engine cannot read the text
	back   *regexp2.Regexp // nil where it can

	mu     sync.Mutex
	failed error // of the first path that took too long: from then on nothing matches
}

// compiled are the expressions that were read, by their text: each is asked of every layer of a model.
var compiled struct {
	sync.Mutex
	by map[string]*pattern
}

// maxPatterns bounds compiled.
const maxPatterns = 256

// compile reads an expression that is part of a larger one: before and after are fixed texts around it.
func compile(before, text, after string) (*pattern, error) {
	whole := before + leastZero(text) + after
	compiled.Lock()
	defer compiled.Unlock()
	if p := compiled.by[whole]; p != nil {
		return p, nil
	}
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it has %d bytes, more than the %d that an expression may have", len(text), maxPattern)
	}
	p := &pattern{text: text}
	var err error
	if p.linear, err = regexp.Compile(whole); err != nil {
		// RE2 lets it read Python's (?P<name>...).
		if p.back, err = regexp2.Compile(whole, regexp2.RE2); err != nil {
			if _, own := regexp2.Compile(leastZero(text), regexp2.RE2); own != nil {
				err = own // without what stands around it
			}
			return nil, err
		}
		p.back.MatchTimeout = patternTime
	}
	if compiled.by == nil || len(compiled.by) >= maxPatterns {
		compiled.by = map[string]*pattern{}
	}
	compiled.by[whole] = p
	return p, nil
}

// leastZero writes Python's {,n}, which is 0 to n repetitions there and text to both engines, as {0,n}, outside sets and escapes.
func leastZero(text string) string {
	var b strings.Builder
	inSet, first := false, 0 // first is where a set's first character would be, which may be a closing bracket
	for i := 0; i < len(text); i++ {
		b.WriteByte(text[i])
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case inSet:
			if c == '^' && i == first {
				first++
			} else if c == ']' && i > first {
				inSet = false
			}
		case c == '[':
			inSet, first = true, i+1
		case c == '{' && repeatsFromZero.MatchString(text[i:]) && i > 0:
			b.WriteByte('0')
		}
	}
	return b.String()
}

var repeatsFromZero = regexp.MustCompile(`^\{,\d*\}`)

// whole is an expression that must match all of a path, as re.fullmatch does.
func whole(text string) (*pattern, error) { return compile("^(?:", text, ")$") }

// ending is one that must match a path's end, from its start or behind a dot: PEFT's rule of rank_pattern and alpha_pattern.
func ending(text string) (*pattern, error) { return compile(`^(?:.*\.)?(?:`, text, ")$") }

// numbering finds the number of a layer in a path, behind a name that follows before.
func numbering(before, text string) (*pattern, error) {
	p, err := compile(before, text, `\.(\d+)\.`)
	if err != nil {
		return nil, err
	}
	if p.groups() != 1 {
		return nil, errors.New("it has groups of its own")
	}
	return p, nil
}

func (p *pattern) groups() int {
	if p.linear != nil {
		return p.linear.NumSubexp()
	}
	return len(p.back.GetGroupNumbers()) - 1
}

// match tells whether a path matches. It is false from the first path on that takes too long; err says so.
func (p *pattern) match(path string) bool {
	if p.linear != nil {
		return p.linear.MatchString(path)
	}
	if p.err() != nil {
		return false
	}
	ok, err := p.back.MatchString(path)
	p.note(path, err)
	return err == nil && ok
}

// group is the text of the first group of a path that matches.
func (p *pattern) group(path string) (string, bool) {
	if p.linear != nil {
		m := p.linear.FindStringSubmatch(path)
		if m == nil {
			return "", false
		}
		return m[1], true
	}
	if p.err() != nil {
		return "", false
	}
	m, err := p.back.FindStringMatch(path)
	p.note(path, err)
	if err != nil || m == nil {
		return "", false
	}
	return m.GroupByNumber(1).String(), true
}

func (p *pattern) note(path string, err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = fmt.Errorf("the expression %q takes longer than %v on %s: write it without nested repetitions",
			words.Clip(p.text, maxShown), patternTime, path)
	}
}

func (p *pattern) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// broken is the first of the section's expressions that took too long on a path, as an error; nil = none did.
func (c Config) broken() error {
	var all []*pattern
	add := func(p *pattern, err error) {
		if err == nil && p != nil {
			all = append(all, p)
		}
	}
	if re, ok := c.TargetModules.expression(); ok {
		add(whole(re))
	}
	for _, k := range sortedKeys(c.RankPattern) {
		add(ending(k))
	}
	for _, k := range sortedKeys(c.AlphaPattern) {
		add(ending(k))
	}
	selection := selectionOf(c)
	add(selection.not, nil)
	for _, p := range selection.patterns {
		add(p, nil)
	}
	for _, p := range all {
		if err := p.err(); err != nil {
			return err
		}
	}
	return nil
}
