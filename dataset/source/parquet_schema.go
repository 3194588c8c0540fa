package source

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/words"
)

// Physical types of Parquet.
const (
	kindBool   = 0
	kindInt32  = 1
	kindInt64  = 2
	kindInt96  = 3
	kindFloat  = 4
	kindDouble = 5
	kindBytes  = 6
	kindFixed  = 7
)

// Repetitions of Parquet.
const (
	required = 0
	optional = 1
	repeated = 2
)

// meaning is what the values of a leaf, or the children of a group, represent.
type meaning int

const (
	plain meaning = iota
	isText
	isList
	isMap
	isDecimal
	isDate
	isTime
	isTimestamp
	isUnsigned
	isUUID
	isFloat16
	isBinary
	holdsJSON
)

// element is one entry of the footer's schema.
type element struct {
	kind, length, repetition, children int
	name                               string
	means                              meaning
	scale, precision                   int
	unit                               int // unit of a time as digits of a second: 3, 6 or 9
	utc                                bool
	group                              bool
}

func readElement(t *thrift) (e element) {
	e.kind = -1
	converted := -1
	t.fields(func(id int, kind byte) {
		switch id {
		case 1:
			e.kind = t.number32(kind)
		case 2:
			e.length = t.number32(kind)
		case 3:
			e.repetition = t.number32(kind)
		case 4:
			if kind != thriftBinary {
				t.skip(kind, 0)
				return
			}
			e.name = string(t.bytes())
		case 5:
			e.children = t.number32(kind)
		case 6:
			converted = t.number32(kind)
		case 7:
			e.scale = t.number32(kind)
		case 8:
			e.precision = t.number32(kind)
		case 10:
			if kind != thriftStruct {
				t.skip(kind, 0)
				return
			}
			t.fields(func(id int, kind byte) { e.readLogical(t, id, kind) })
		default:
			t.skip(kind, 0)
		}
	})
	e.group = e.kind < 0
	if e.means == plain {
		e.convert(converted)
	}
	return e
}

// readLogical reads a member of the union LogicalType.
func (e *element) readLogical(t *thrift, id int, kind byte) {
	e.means = map[int]meaning{1: isText, 2: isMap, 3: isList, 4: isText, 5: isDecimal, 6: isDate, 7: isTime,
		8:  isTimestamp,
		12: holdsJSON, 13: isBinary, 14: isUUID, 15: isFloat16}[id]
	if kind != thriftStruct {
		t.skip(kind, 0)
		return
	}
	t.fields(func(field int, kind byte) {
		switch {
		case id == 5 && field == 1:
			e.scale = t.number32(kind)
		case id == 5 && field == 2:
			e.precision = t.number32(kind)
		case (id == 7 || id == 8) && field == 1:
			e.utc = kind == thriftTrue
		case (id == 7 || id == 8) && field == 2 && kind == thriftStruct:
			t.fields(func(unit int, kind byte) {
				e.unit = min(max(3*unit, 3), 9)
				t.skip(kind, 0)
			})
		case id == 10 && field == 2:
			if kind == thriftFalse {
				e.means = isUnsigned
			}
			t.skip(kind, 0)
		default:
			t.skip(kind, 0)
		}
	})
}

// convert reads the older ConvertedType, which writers still write beside the newer LogicalType.
func (e *element) convert(converted int) {
	switch {
	case converted == 0 || converted == 4:
		e.means = isText
	case converted == 19:
		e.means = holdsJSON
	case converted == 1 || converted == 2:
		e.means = isMap
	case converted == 3:
		e.means = isList
	case converted == 5:
		e.means = isDecimal
	case converted == 6:
		e.means = isDate
	case converted == 7 || converted == 8:
		e.means, e.unit, e.utc = isTime, 3*(converted-6), true
	case converted == 9 || converted == 10:
		e.means, e.unit, e.utc = isTimestamp, 3*(converted-8), true
	case converted >= 11 && converted <= 14:
		e.means = isUnsigned
	case converted == 20 || converted == 21:
		e.means = isBinary
	}
}

// node is a column of the schema: a leaf, which has values, or a group of columns.
type node struct {
	element
	parent   *node
	nodes    []*node
	first    int // index of its first leaf
	leaves   int // number of its leaves
	def, rep int // greatest levels
	key      []byte
}

func (n *node) path() string {
	if n.parent == nil || n.parent.parent == nil {
		return words.Clip(n.name, maxShown)
	}
	return n.parent.path() + "." + words.Clip(n.name, maxShown)
}

// buildSchema makes the tree from the footer's list, which is in depth-first order.
func (f *parquetFile) buildSchema(elements []element) error {
	if len(elements) == 0 || elements[0].children <= 0 {
		return damaged("it has no columns")
	}
	at := 0
	var build func(parent *node, depth int) (*node, error)
	build = func(parent *node, depth int) (*node, error) {
		if at >= len(elements) {
			return nil, damaged("its schema ends too early")
		}
		if depth > maxSchemaDepth {
			return nil, &FileError{0, fmt.Sprintf("the columns of the Parquet file are nested deeper than %d levels",
				maxSchemaDepth)}
		}
		n := &node{element: elements[at], parent: parent, first: len(f.leaves)}
		at++
		if !utf8.ValidString(n.name) {
			return nil, damaged("the name of a column is not UTF-8")
		}
		n.key = appendString(nil, []byte(n.name))
		if parent != nil {
			n.def, n.rep = parent.def, parent.rep
			if n.repetition != required {
				n.def++
			}
			if n.repetition == repeated {
				n.rep++
			}
			if n.repetition < required || n.repetition > repeated {
				return nil, damaged("column %q is neither required, optional nor repeated", n.path())
			}
		}
		if !n.group {
			if n.kind > kindFixed || n.kind == kindFixed && (n.length <= 0 || n.length > MaxRowBytes) {
				return nil, damaged("column %q has an unknown type", n.path())
			}
			n.leaves = 1
			f.leaves = append(f.leaves, n)
			return n, nil
		}
		names := map[string]bool{}
		for range max(n.children, 0) {
			child, err := build(n, depth+1)
			if err != nil {
				return nil, err
			}
			if names[child.name] {
				return nil, &FileError{0, fmt.Sprintf("the Parquet file has two columns %q", child.path())}
			}
			names[child.name] = true
			n.nodes = append(n.nodes, child)
		}
		if len(n.nodes) == 0 {
			return nil, damaged("the group %q has no columns", n.path())
		}
		n.leaves = len(f.leaves) - n.first
		return n, nil
	}
	root, err := build(nil, 0)
	if err != nil {
		return err
	}
	if at != len(elements) {
		return damaged("its schema has %d elements too many", len(elements)-at)
	}
	f.root = root
	return nil
}

// item returns the element of a list: usually the only child of a repeated group.
func (n *node) item() *node {
	child := n.nodes[0]
	if child.group && len(child.nodes) == 1 && child.name != "array" && child.name != n.name+"_tuple" &&
		child.means == plain {
		return child.nodes[0]
	}
	return child
}

// isListOf reports whether the node is a LIST: it has one child, which is repeated.
func (n *node) isListOf() bool {
	return n.group && n.means == isList && len(n.nodes) == 1 && n.nodes[0].repetition == repeated
}

// isMapOf reports whether the node is a MAP: it has one child, which is repeated and holds a string key and a value.
func (n *node) isMapOf() bool {
	if !n.group || n.means != isMap || len(n.nodes) != 1 || n.nodes[0].repetition != repeated ||
		len(n.nodes[0].nodes) != 2 {
		return false
	}
	key := n.nodes[0].nodes[0]
	return !key.group && key.repetition == required && key.kind == kindBytes && key.means != holdsJSON
}

func codecName(codec int) string {
	names := strings.Fields("nothing snappy gzip LZO brotli LZ4 zstd LZ4_RAW")
	if codec >= 0 && codec < len(names) {
		return names[codec]
	}
	return fmt.Sprintf("an unknown codec (%d)", codec)
}
