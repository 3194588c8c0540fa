package jsonform

import (
	"fmt"
	"slices"
	"strconv"
)

// apart returns an error if two alternatives of a oneOf may match the same value.
func (p *parser) apart() error {
	work := 2_000_000 // bound on the number of comparisons
	for _, one := range p.oneOfs {
		for i, a := range one.groups {
			for j, b := range one.groups[:i] {
				if !everyPair(a, b, 0, &work) {
					return fmt.Errorf("%s: schemas %d and %d may match the same value, which oneOf forbids; use "+
						"anyOf, or give both a "+"required property with a different const or enum", one.at, j, i)
				}
			}
		}
	}
	return nil
}

func everyPair(a, b []*node, depth int, work *int) bool {
	for _, x := range a {
		for _, y := range b {
			if !disjoint(x, y, depth, work) {
				return false
			}
		}
	}
	return true
}

// disjoint reports whether two nodes certainly match no common value. work bounds the comparisons.
func disjoint(a, b *node, depth int, work *int) bool {
	if *work -= 1 + len(a.literals)*len(b.literals); *work < 0 || depth > 4 || a == b {
		return false
	}
	if a.any != nil || b.any != nil {
		of := func(n *node) []*node {
			if n.any != nil {
				return n.any
			}
			return []*node{n}
		}
		return everyPair(of(a), of(b), depth+1, work)
	}
	if a.low >= never || b.low >= never {
		return true
	}
	x, y := a.span(), b.span()
	switch common := x & y; {
	case common == 0:
		return true
	case a.literals != nil && b.literals != nil:
		return !slices.ContainsFunc(a.literals, func(v string) bool {
			return slices.ContainsFunc(b.literals, func(w string) bool { return mayEqual(v, w) })
		})
	case common != kObject || a.literals != nil || b.literals != nil:
		return false
	}
	return a.tells(b, depth, work) || b.tells(a, depth, work)
}

// tells reports whether one object requires a property whose values the other cannot have.
func (n *node) tells(o *node, depth int, work *int) bool {
	for i, key := range n.keys {
		if n.required>>i&1 == 0 {
			continue
		}
		other := o.more
		if at, ok := slices.BinarySearch(o.keys, key); ok {
			other = o.values[at]
		}
		if other == nil || disjoint(n.values[i], other, depth+1, work) {
			return true
		}
	}
	return false
}

// span returns the set of kinds that a node's values have; an integer counts as a number.
func (n *node) span() kinds {
	set := n.kinds
	if n.literals != nil {
		set = 0
		for _, text := range n.literals {
			set |= kindOf(text)
		}
	}
	if set&kInteger != 0 {
		set |= kNumber
	}
	return set &^ kInteger
}

func kindOf(text string) kinds {
	switch text[0] {
	case '{':
		return kObject
	case '[':
		return kArray
	case '"':
		return kString
	case 't', 'f':
		return kBoolean
	case 'n':
		return kNull
	}
	return kNumber
}

// mayEqual reports whether two JSON texts may be the same value.
func mayEqual(a, b string) bool {
	k := kindOf(a)
	if k != kindOf(b) {
		return false
	}
	if k == kNumber {
		x, err := strconv.ParseFloat(a, 64)
		y, err2 := strconv.ParseFloat(b, 64)
		return err != nil || err2 != nil || x == y
	}
	return a == b || k == kObject || k == kArray
}
