// Package jinja evaluates the Jinja templates of models' conversation formats. It renders what Jinja2 3.1.6 renders in
// the environment that Hugging Face transformers sets up: the immutable sandbox, trim_blocks and lstrip_blocks, loop
// controls, {% generation %} blocks, raise_exception, strftime_now and a tojson that escapes no HTML. Values follow
// Python: strings are sequences of code points, dictionaries keep their order, integers have any size.
//
// A template is untrusted input. It has no access to files or Go values. Limits bounds its steps, depth, output and the
// bytes that it builds. Every operation that works or allocates counts its cost first, so that a template ends within
// about a second and 256 MiB.
package jinja

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits bound one rendering; a zero field is the default.
type Limits struct {
	// Steps counts statements, operations of expressions, visited items and bytes that are read or written, each
	// weighted so that a step takes about 50 ns at most; default 20 million.
	Steps  int
	Depth  int // depth of nested macro calls; default 200
	Output int // bytes of the text, and of any intermediate value; default 32 MiB
	Memory int // bytes of the text and of all intermediate values, including freed ones; default 128 MiB
}

// MaxSource is the longest template in bytes.
const MaxSource = 1 << 20

func (l Limits) withDefaults() Limits {
	set := func(to *int, value int) {
		if *to <= 0 {
			*to = value
		}
	}
	set(&l.Steps, 20_000_000)
	set(&l.Depth, 200)
	set(&l.Output, 32<<20)
	set(&l.Memory, 128<<20)
	return l
}

// Options are what a rendering needs besides the variables.
type Options struct {
	Now    time.Time // time that strftime_now returns
	Limits Limits
}

// Output is a rendered text. Generation holds the half-open byte ranges of the {% generation %} blocks in the
// order in which they ended. A block inside a macro or a {% set %} block is placed as transformers places it:
// where the text outside of that ended.
type Output struct {
	Text       string
	Generation [][2]int
	// CodePoints has the same ranges in code points, as transformers counts them.
	CodePoints [][2]int
	// Captured says that a block is inside a macro, {% set %}, {% filter %}, {% call %} or another block, so that its
	// range may not contain its text.
	Captured bool
}

// Error is the error of a template that cannot be compiled or rendered.
type Error struct {
	Line    int    // line of the template, from 1; 0 = unknown
	Kind    string // Jinja2's or Python's name of the exception, LimitError, or UnsupportedError
	Message string
}

// Error returns the message with the line of the template.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Kind, e.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Message)
}

// Template is a compiled template. It is safe for concurrent rendering.
type Template struct {
	body    []stmt
	slots   int      // number of slots of the outermost frame
	names   []string // variables that are looked up by name at the start of a rendering
	states  sync.Pool
	hasGens bool
}

// HasGeneration reports whether the template has {% generation %} blocks.
func (t *Template) HasGeneration() bool { return t.hasGens }

// Compile parses a template. An error is an *Error with the line.
func Compile(source string) (t *Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = asError(r, 0)
			t = nil
		}
	}()
	if len(source) > MaxSource {
		fail(0, "the template has %d bytes, more than %d", len(source), MaxSource)
	}
	if i := invalidUTF8(source); i >= 0 {
		fail(1+strings.Count(source[:i], "\n"), "the template is not UTF-8: byte %d is 0x%02x", i, source[i])
	}
	root := parse(source)
	return compile(root), nil
}

// Render renders the template with the variables, which it does not change. Concurrent renderings may share values. An
// error is an *Error.
func (t *Template) Render(vars *Dict, o Options) (out Output, err error) {
	st, _ := t.states.Get().(*state)
	if st == nil {
		st = &state{}
	}
	st.reset(t, vars, o)
	defer func() {
		if r := recover(); r != nil {
			out, err = Output{}, asError(r, st.line)
			return // the state is dropped, because its buffers are inconsistent
		}
		t.states.Put(st)
	}()
	f := &frame{st: st, slots: make([]Value, t.slots)}
	execAll(t.body, f)
	out = Output{Text: string(st.top.b)}
	if len(st.spans) > 0 {
		out.Generation, out.CodePoints = slices.Clone(st.spans), slices.Clone(st.runeSpans)
		out.Captured = st.captured
	}
	st.release()
	return out, nil
}

// raised is the panic value of a Python exception; Render adds the line.
type raised struct{ kind, message string }

// raise ends a rendering, or the folding of a constant, as a Python exception would.
func raise(kind, format string, args ...any) {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	panic(&raised{kind, message})
}

// fail ends a compilation.
func fail(line int, format string, args ...any) {
	panic(&Error{Line: line, Kind: "TemplateSyntaxError", Message: fmt.Sprintf(format, args...)})
}

// asError converts the panic values of raise and fail to an error; any other value is a broken invariant of this
// package.
func asError(r any, line int) error {
	switch e := r.(type) {
	case *raised:
		return &Error{Line: line, Kind: e.kind, Message: e.message}
	case *Error:
		return e
	}
	panic(r)
}
