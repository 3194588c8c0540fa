package jinja

import (
	"math"
	"math/bits"
	"unicode/utf8"
)

type sliceExpr struct {
	x     expr
	parts [3]expr // start, stop, step; nil = not given
	// a constant sliced at compile time; Jinja2 then turns a TypeError into undefined
	folding bool
}

func (e *sliceExpr) eval(f *frame) Value {
	f.st.step(1)
	v := e.x.eval(f)
	var parts [3]Value
	for i, p := range e.parts {
		if p != nil {
			parts[i] = p.eval(f)
		}
	}
	if u, ok := v.(*undefined); ok {
		u.use()
	}
	if e.folding && (!sliceable(v) || !indexable(parts)) {
		return &undefined{obj: v, name: Str("slice")}
	}
	return slice(f.st, v, parts)
}

func sliceable(v Value) bool {
	_, isRange := v.(*rangeObj)
	return isRange || isSequence(v)
}

// indexable reports whether a slice raises no TypeError; a step of zero is checked first.
func indexable(parts [3]Value) bool {
	for _, i := range []int{2, 0, 1} {
		if parts[i] == nil || parts[i] == (None{}) {
			continue
		}
		n, ok := indexOf(parts[i])
		if !ok {
			return false
		}
		if i == 2 && n == 0 {
			return true
		}
	}
	return true
}

// slice evaluates Python's v[start:stop:step].
func slice(st *state, v Value, parts [3]Value) Value {
	switch v := v.(type) {
	case Str:
		return Str(sliceString(st, string(v), parts))
	case markup:
		return markup(sliceString(st, string(v), parts))
	case *List:
		return &List{sliceItems(st, v.Items, parts)}
	case *Tuple:
		return &Tuple{sliceItems(st, v.items, parts)}
	case *rangeObj:
		start, stop, _, step := indices(parts, v.length())
		if hi, lo := bits.Mul64(uint64(max(step, -step)), uint64(max(v.step, -v.step))); hi != 0 || lo > math.MaxInt64 {
			raise("LimitError", "a range whose step has more than 64 bits")
		}
		return &rangeObj{v.start + start*v.step, v.start + stop*v.step, v.step * step}
	case *undefined:
		v.use()
	case *function:
		item(st, v, None{}) // dict[...] has an error message of its own
	case *Dict:
		raise("TypeError", "unhashable type: 'slice'")
	}
	raise("TypeError", "'%s' object is not subscriptable", v.typeName())
	return nil
}

// indices returns the first index, the end, the number of items and the step of a slice of n items.
func indices(parts [3]Value, n int64) (start, stop, count, step int64) {
	step = 1
	if v, given := sliceIndex(parts[2]); given {
		step = max(v, -math.MaxInt64)
		if step == 0 {
			raise("ValueError", "slice step cannot be zero")
		}
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	clip := func(v Value, otherwise int64) int64 {
		i, given := sliceIndex(v)
		if !given {
			return otherwise
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if step > 0 {
		start, stop = clip(parts[0], 0), clip(parts[1], n)
		if stop > start {
			count = (stop-start-1)/step + 1
		}
		return start, stop, count, step
	}
	start, stop = clip(parts[0], n-1), clip(parts[1], -1)
	if stop < start {
		count = (start-stop-1)/(-step) + 1
	}
	return start, stop, count, step
}

func sliceIndex(v Value) (int64, bool) {
	switch v := v.(type) {
	case nil, None:
		return 0, false
	case *undefined:
		raise("TypeError", "slice indices must be integers or None or have an __index__ method")
	default:
		if n, ok := indexOf(v); ok {
			return n, true
		}
		raise("TypeError", "slice indices must be integers or None or have an __index__ method")
	}
	return 0, false
}

func sliceItems(st *state, items []Value, parts [3]Value) []Value {
	start, _, count, step := indices(parts, int64(len(items)))
	if step == 1 {
		st.step(1)
		return items[start : start+count : start+count] // lists never change, so they may share memory
	}
	st.charge(valueSize * int(count))
	out := make([]Value, 0, count)
	for ; count > 0; count-- {
		out = append(out, items[start])
		start += step
	}
	return out
}

func sliceString(st *state, s string, parts [3]Value) string {
	st.scan(2 * len(s)) // to count the code points, and to find the start
	n := utf8.RuneCountInString(s)
	start, _, count, step := indices(parts, int64(n))
	if count == 0 {
		return ""
	}
	if n == len(s) { // ASCII
		if step == 1 {
			return s[start : start+count]
		}
		st.charge(int(count))
		b := make([]byte, 0, count)
		for ; count > 0; count-- {
			b = append(b, s[start])
			start += step
		}
		return string(b)
	}
	if step == 1 {
		from := byteOffset(s, int(start))
		return s[from : from+byteOffset(s[from:], int(count))]
	}
	st.charge(4*n + 8*int(count))
	st.step(n)
	runes := []rune(s)
	out := make([]rune, 0, count)
	for ; count > 0; count-- {
		out = append(out, runes[start])
		start += step
	}
	return string(out)
}

// byteOffset returns the byte offset of the n-th code point of s.
func byteOffset(s string, n int) int {
	i := 0
	for ; n > 0; n-- {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return i
}
