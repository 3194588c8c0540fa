package jsonform

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
)

// Parts of the formats' regular expressions. They allow only what all readers accept: upper-case T and Z, no leap
// second, years from 1 on, at most six fractional digits of a second, and no two hyphens in a row in a host name.
const (
	year     = `([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)`
	leapYear = `([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)`
	fullDate = `(` + year +
		`-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|` +
		leapYear + `-02-29)`
	hours    = `([01][0-9]|2[0-3]):[0-5][0-9]`
	fullTime = hours + `:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]` + hours + `)`
	seconds  = `[0-9]{1,4}S`
	minutes  = `[0-9]{1,4}M(` + seconds + `)?`
	timePart = `T([0-9]{1,4}H(` + minutes + `)?|` + minutes + `|` + seconds + `)`
	days     = `[0-9]{1,4}D`
	months   = `[0-9]{1,4}M(` + days + `)?`
	octet    = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	hex      = `[0-9A-Fa-f]`
	name     = `[A-Za-z0-9](-?[A-Za-z0-9]){0,31}`
	lastName = `[A-Za-z](-?[A-Za-z0-9]){0,31}`
	topName  = `[A-Za-z](-?[A-Za-z0-9]){0,30}[A-Za-z]` // top-level domain of an address
	atom     = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
)

// A format is a regular expression for strings, with a limit in bytes.
type format struct {
	name string
	most int
	form string
	made func() []formState
}

// formState is a state of a format's automaton.
type formState struct {
	next [128]int16 // next state for each ASCII byte; -1 = the byte cannot follow
	left int        // bytes to the nearest accepting state; 0 = this state accepts
}

// formats are the formats of OpenAI's structured outputs, and pydantic's format of UUIDs.
var formats = newFormats()

func newFormats() map[string]*format {
	all := map[string]*format{}
	add := func(name string, most int, form string) {
		all[name] = &format{name: name, most: most, form: form, made: sync.OnceValue(func() []formState {
			return automaton(form)
		})}
	}
	uuid := func(version string) string {
		return hex + `{8}-` + hex + `{4}-` + version + hex + `{3}-` + hex + `{4}-` + hex + `{12}`
	}
	add("date", 10, fullDate)
	add("time", 21, fullTime)
	add("date-time", 32, fullDate+`T`+fullTime)
	add("duration", 40, `P([0-9]{1,4}W|([0-9]{1,4}Y(`+months+`)?|`+months+`|`+days+`)(`+timePart+`)?|`+timePart+`)`)
	add("email", 254, atom+`(\.?`+atom+`){0,31}@(`+name+`\.){1,7}`+topName)
	add("hostname", 253, `(`+name+`\.){0,7}`+lastName)
	add("ipv4", 15, octet+`(\.`+octet+`){3}`)
	add("ipv6", 39, ipv6())
	add("uuid", 36, uuid(hex))
	for _, v := range "1345678" {
		add("uuid"+string(v), 36, strings.Replace(uuid(string(v)), `-`+hex+`{4}-`+hex+`{12}`, `-[89ABab]`+hex+
			`{3}-`+hex+`{12}`, 1))
	}
	return all
}

// ipv6 returns the expression of an IPv6 address: eight groups, or fewer with :: for the omitted ones.
func ipv6() string {
	group := hex + `{1,4}`
	forms := []string{`(` + group + `:){7}` + group}
	for before := range 8 {
		form := `::`
		if before > 0 {
			form = group + fmt.Sprintf(`(:%s){%d}`, group, before-1) + form
		}
		if after := 7 - before; after > 0 {
			form += fmt.Sprintf(`(%s(:%s){0,%d})?`, group, group, after-1)
		}
		forms = append(forms, form)
	}
	return strings.Join(forms, "|")
}

// automaton compiles a regular expression into a deterministic automaton by the subset construction: a state is the set
// of positions in the expression at which a text can be.
func automaton(form string) []formState {
	tree, err := syntax.Parse(form, syntax.Perl)
	if err != nil {
		panic(fmt.Sprintf("jsonform: %s: %v", form, err))
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		panic(fmt.Sprintf("jsonform: %s: %v", form, err))
	}
	var states []formState
	var sets [][]uint32
	known := map[string]int16{}
	add := func(set []uint32) int16 {
		slices.Sort(set)
		set = slices.Compact(set)
		key := fmt.Sprint(set)
		if i, ok := known[key]; ok {
			return i
		}
		known[key] = int16(len(states))
		s := formState{left: never}
		for _, pc := range set {
			if prog.Inst[pc].Op == syntax.InstMatch {
				s.left = 0
			}
		}
		states, sets = append(states, s), append(sets, set)
		return known[key]
	}
	add(reach(prog, nil, uint32(prog.Start)))
	for i := 0; i < len(sets); i++ {
		for c := range states[i].next {
			var to []uint32
			for _, pc := range sets[i] {
				if in := &prog.Inst[pc]; in.Op != syntax.InstMatch && in.MatchRune(rune(c)) {
					to = reach(prog, to, in.Out)
				}
			}
			next := int16(-1)
			if len(to) > 0 {
				next = add(to)
			}
			states[i].next[c] = next
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range states {
			for _, to := range states[i].next {
				if to >= 0 && states[to].left+1 < states[i].left {
					states[i].left, changed = states[to].left+1, true
				}
			}
		}
	}
	return states
}

// reach adds to set the instructions that read a byte or match, and that follow pc without reading.
func reach(prog *syntax.Prog, set []uint32, pc uint32) []uint32 {
	if slices.Contains(set, pc) {
		return set
	}
	switch in := &prog.Inst[pc]; in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		return reach(prog, reach(prog, set, in.Out), in.Arg)
	case syntax.InstCapture, syntax.InstNop:
		return reach(prog, set, in.Out)
	case syntax.InstFail:
		return set
	}
	return append(set, pc)
}

// readFormat returns the format that a schema names.
func readFormat(value json.RawMessage, at string) (*format, error) {
	var name string
	if json.Unmarshal(value, &name) != nil {
		return nil, fmt.Errorf("%s: want a string", at)
	}
	f := formats[name]
	if f == nil {
		return nil, fmt.Errorf("%s: %.80q is not supported; a format is one of %s", at, name,
			strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
	}
	return f, nil
}

// inFormat accepts a byte of a string that has a format. a.from is the automaton's state, a.at the string's length so
// far.
func (a *state) inFormat(c byte) bool {
	states := a.node.states
	if c == '"' {
		if states[a.from].left > 0 {
			return false
		}
		a.ended()
		return true
	}
	if c >= 128 || states[a.from].next[c] < 0 {
		return false
	}
	a.from, a.at = int(states[a.from].next[c]), a.at+1
	return a.at+states[a.from].left <= a.node.format.most
}

// checkFormat returns an error for a format on a schema without strings, and for an enum or const string that the
// format does not match.
func (n *node) checkFormat(object map[string]json.RawMessage, at string) error {
	if n.format == nil {
		return nil
	}
	if n.kinds&kString == 0 {
		return fmt.Errorf("%s.format: %q applies to strings, and the type is %s", at, n.format.name, object["type"])
	}
	for _, text := range n.literals {
		if text[0] != '"' {
			continue
		}
		a := state{node: n, mode: mFormat}
		for i := 1; i < len(text); i++ {
			if a.mode != mFormat || !a.inFormat(text[i]) {
				return fmt.Errorf("%s.format: %.80s of enum or const does not match format %q", at,
					text, n.format.name)
			}
		}
	}
	return nil
}
