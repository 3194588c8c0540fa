package jinja

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Dict is Python's dict: it keeps the order in which keys were inserted.
type Dict struct {
	keys  []Value
	vals  []Value
	index map[any]int // by hash key; only used with more keys than small
}

// small is the largest number of keys that are searched linearly.
const small = 8

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{} }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// At returns the i-th key and its value.
func (d *Dict) At(i int) (key, value Value) { return d.keys[i], d.vals[i] }

// Get returns the value of a string key.
func (d *Dict) Get(key string) (Value, bool) {
	v := d.lookup(key)
	return v, v != nil
}

// lookup returns the value of a string key, nil if the key is missing.
func (d *Dict) lookup(key string) Value {
	if i := d.find(key); i >= 0 {
		return d.vals[i]
	}
	return nil
}

func (d *Dict) find(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range d.keys {
		switch k := k.(type) {
		case Str:
			if string(k) == key {
				return i
			}
		case markup:
			if string(k) == key {
				return i
			}
		}
	}
	return -1
}

// findKey returns the index of a key that hashKey returned, -1 if the key is missing.
func (d *Dict) findKey(st *state, key any) int {
	if s, ok := key.(string); ok {
		return d.find(s)
	}
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range d.keys {
		if hashKey(st, k) == key {
			return i
		}
	}
	return -1
}

// Set sets the value of a string key. A new key is appended; an existing one keeps its position.
func (d *Dict) Set(key string, v Value) { d.put(nil, Str(key), key, v) }

// set does what Set does for any hashable key.
func (d *Dict) set(st *state, key, v Value) {
	hash := hashKey(st, key)
	st.use(keySize)
	d.put(st, key, hash, v)
}

// keySize is the size in bytes that a key of a dict counts for, with its value and its entry in the index.
const keySize = 8 * valueSize

func (d *Dict) put(st *state, key Value, hash any, v Value) {
	if i := d.findKey(st, hash); i >= 0 {
		d.vals[i] = v
		return
	}
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
	if d.index != nil {
		d.index[hash] = len(d.keys) - 1
	} else if len(d.keys) > small {
		d.reindex(st)
	}
}

func (d *Dict) reindex(st *state) {
	d.index = make(map[any]int, 2*len(d.keys))
	for i, k := range d.keys {
		d.index[hashKey(st, k)] = i
	}
}

// Delete removes a string key, if it exists.
func (d *Dict) Delete(key string) {
	i := d.find(key)
	if i < 0 {
		return
	}
	d.keys = slices.Delete(d.keys, i, i+1)
	d.vals = slices.Delete(d.vals, i, i+1)
	d.index = nil
	if len(d.keys) > small {
		d.reindex(nil)
	}
}

// Copy returns a separate dict with the same values.
func (d *Dict) Copy() *Dict { return d.copied(nil) }

func (d *Dict) copied(st *state) *Dict {
	if st != nil {
		st.charge(keySize * len(d.keys))
	}
	c := &Dict{keys: slices.Clone(d.keys), vals: slices.Clone(d.vals)}
	if len(c.keys) > small {
		c.reindex(st)
	}
	return c
}

type (
	noneKey      struct{}
	undefinedKey struct{}
	rangeKey     struct{ length, start, step int64 }
	tupleKey     string
	bigKey       string
	nanKey       struct{ of *byte }
)

// hashKey returns a Go value that is equal for keys that are equal in Python: 1, 1.0 and True are one key. It raises
// TypeError for values that cannot be hashed. It counts its work if st is not nil, because only a template can make
// keys that are slow to hash.
func hashKey(st *state, v Value) any { return hashDeep(st, v, 0) }

func hashDeep(st *state, v Value, depth int) any {
	if st != nil {
		st.step(1)
		if s, ok := asStr(v); ok {
			st.scan(len(s))
		}
	}
	if depth > maxNest {
		raise("RecursionError", "tuples lie more than %d deep in each other", maxNest)
	}
	switch v := v.(type) {
	case Str:
		return string(v)
	case markup:
		return string(v)
	case Int:
		return int64(v)
	case Bool:
		return int64(boolInt(bool(v)))
	case Float:
		f := float64(v)
		switch {
		case f == math.Trunc(f) && f >= -1<<63 && f < 1<<63:
			return int64(f)
		case f != f:
			return nanKey{new(byte)} // a NaN equals no key
		case f == math.Trunc(f) && !math.IsInf(f, 0):
			return bigKey(bigOfFloat(f).n.String())
		}
		return f
	case bigInt:
		if st != nil {
			st.stepBig(v)
		}
		return bigKey(v.n.String())
	case None:
		return noneKey{}
	case *undefined:
		return undefinedKey{}
	case *Tuple:
		return hashItems(st, v.items, depth)
	case *rangeObj:
		n := v.length()
		if n == 0 {
			return rangeKey{}
		}
		if n == 1 {
			return rangeKey{n, v.start, 0}
		}
		return rangeKey{n, v.start, v.step}
	case *dictView:
		if v.kind != "dict_values" {
			raise("TypeError", "unhashable type: '%s'", v.typeName())
		}
	case *List, *Dict:
		raise("TypeError", "unhashable type: '%s'", v.typeName())
	}
	return v
}

// hashItems concatenates the keys of a tuple's items, each with its kind and length.
func hashItems(st *state, items []Value, depth int) any {
	var b strings.Builder
	room := func(n int) {
		if st != nil {
			st.step(20)
			st.grow(b.Len(), n+24)
		}
	}
	write := func(kind byte, s string) {
		room(len(s))
		b.WriteByte(kind)
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(':')
		b.WriteString(s)
	}
	for _, v := range items {
		switch k := hashDeep(st, v, depth+1).(type) {
		case string:
			write('s', k)
		case tupleKey:
			write('t', string(k))
		case bigKey:
			room(len(k))
			fmt.Fprintf(&b, "%T%v,", k, k)
		case int64, float64, noneKey, undefinedKey, rangeKey:
			room(64)
			fmt.Fprintf(&b, "%T%v,", k, k)
		default:
			room(64)
			fmt.Fprintf(&b, "%T%p,", k, k)
		}
	}
	return tupleKey(b.String())
}
