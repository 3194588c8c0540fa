package jinja

import "time"

// state is the state of one rendering.
type state struct {
	top       buffer  // the text
	cur       *buffer // current output: top, or the buffer of a macro or block
	spare     []*buffer
	spans     [][2]int // byte ranges of generation blocks
	runeSpans [][2]int // ranges of generation blocks in code points
	captured  bool
	counted   [2]int  // bytes of top whose code points are counted, and the count
	names     []Value // values of Template.names; nil = missing
	line      int
	stack     []Value             // arguments of the calls in progress
	bound     [8][maxParams]Value // parameters of the built-in functions in progress
	rooms     int                 // number of entries of bound in use
	now       time.Time
	limits    Limits
	steps     int
	memory    int
	depth     int
	pulls     int // depth of generators and loops that request items of each other
}

type buffer struct{ b []byte }

// frame holds the local variables of the template's outermost level, of a macro, a call block or a recursive loop. It
// reads the variables of enclosing frames through up.
type frame struct {
	st    *state
	slots []Value
	up    *frame
}

// keep counts the memory of a frame that a macro or a loop may keep after its end.
func (f *frame) keep() { f.st.use(valueSize * len(f.slots)) }

func (st *state) reset(t *Template, vars *Dict, o Options) {
	st.top.b = st.top.b[:0]
	st.cur = &st.top
	st.spans, st.runeSpans, st.captured, st.counted = st.spans[:0], st.runeSpans[:0], false, [2]int{}
	st.stack = st.stack[:0]
	st.rooms = 0
	st.line = 1
	st.now, st.limits = o.Now, o.Limits.withDefaults()
	st.steps, st.memory, st.depth, st.pulls = 0, 0, 0, 0
	if cap(st.names) < len(t.names) {
		st.names = make([]Value, len(t.names))
	}
	st.names = st.names[:len(t.names)]
	for i, name := range t.names {
		var v Value
		if vars != nil {
			v = vars.lookup(name)
		}
		if v == nil {
			v = globals[name]
		}
		st.names[i] = v
	}
}

// keep is the largest size of a buffer that a finished rendering leaves to the next one.
const keep = 1 << 20

func (st *state) release() {
	clear(st.names)
	if cap(st.top.b) > keep {
		st.top.b = nil
	}
}

// step counts work before it is done; n is at least 0.
func (st *state) step(n int) {
	if st.steps += n; st.steps > st.limits.Steps {
		st.tooLong()
	}
}

func (st *state) tooLong() {
	raise("LimitError", "the template takes more than %d steps", st.limits.Steps)
}

// pull counts a generator or a loop that requests an item of another one, until pulled.
func (st *state) pull() {
	st.step(1)
	if st.pulls++; st.pulls > maxNest {
		raise("RecursionError", "generators read from each other more than %d deep", maxNest)
	}
}

func (st *state) pulled() { st.pulls-- }

// scan counts the work of reading n bytes of text in a tight loop. Loops that look up every code point in a table count
// a step for each byte.
func (st *state) scan(n int) {
	if n >= 256 {
		st.step(n >> 4)
	}
}

// scanAll calls scan for the texts among values.
func (st *state) scanAll(values []Value) {
	for _, v := range values {
		if s, ok := asStr(v); ok {
			st.scan(len(s))
		}
	}
}

// charge counts bytes that are about to be built.
func (st *state) charge(n int) { st.grow(0, n) }

// grow counts n bytes that are about to be appended to a value of have bytes.
func (st *state) grow(have, n int) {
	if n > st.limits.Output-have {
		raise("LimitError", "the template builds a value of more than %d bytes", st.limits.Output)
	}
	st.use(n)
}

// use counts bytes of memory, and the work of writing them.
func (st *state) use(n int) {
	if n > st.limits.Memory-st.memory {
		raise("LimitError", "the template builds more than %d bytes of values", st.limits.Memory)
	}
	st.memory += n
	st.step(1 + n>>8)
}

func (st *state) enter() {
	st.depth++
	if st.depth > st.limits.Depth {
		raise("RecursionError", "macros or loops call each other more than %d deep", st.limits.Depth)
	}
	st.step(1)
}

func (st *state) leave() { st.depth-- }

func (st *state) write(s string) {
	if len(s) > st.limits.Output-len(st.cur.b) {
		raise("LimitError", "the text has more than %d bytes", st.limits.Output)
	}
	st.use(len(s))
	st.cur.b = append(st.cur.b, s...)
}

// push redirects output to a buffer of its own until pop.
func (st *state) push() *buffer {
	before := st.cur
	if n := len(st.spare); n > 0 {
		st.cur = st.spare[n-1]
		st.spare = st.spare[:n-1]
		st.cur.b = st.cur.b[:0]
	} else {
		st.cur = &buffer{}
	}
	return before
}

func (st *state) pop(before *buffer) string {
	b := st.cur
	st.charge(len(b.b))
	s := string(b.b)
	st.cur = before
	if cap(b.b) <= keep {
		st.spare = append(st.spare, b)
	}
	return s
}

// drop does what pop does without the text, for a block that a break or continue leaves.
func (st *state) drop(before *buffer) {
	st.spare = append(st.spare, st.cur)
	st.cur = before
}

// room returns memory for the parameters of a built-in function, which must not use it after giveRoom.
func (st *state) room() *[maxParams]Value {
	if st.rooms++; st.rooms > len(st.bound) {
		return new([maxParams]Value)
	}
	return &st.bound[st.rooms-1]
}

func (st *state) giveRoom(b *[maxParams]Value) {
	st.rooms--
	clear(b[:])
}
