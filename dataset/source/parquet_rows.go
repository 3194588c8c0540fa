package source

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

// parquetRows assembles the rows of a Parquet file from its columns.
type parquetRows struct {
	file    *parquetFile
	limit   int
	group   int // current row group
	left    int64
	cursors []*cursor // one for each leaf
	held    int
	zstd    *zstd.Decoder
	data    []byte
	wrong   error // error of the current row, after which reading can continue
	passed  int   // levels of the current row beyond its greatest length
}

func (p *parquetRows) at() int { return 0 }

// count returns the number of rows without reading them.
func (p *parquetRows) count() int { return int(p.file.count) }

func (p *parquetRows) close() {
	if p.zstd != nil {
		p.zstd.Close()
		p.zstd = nil
	}
}

// next returns the next row. It recovers from a panic over malformed bytes that no check found.
func (p *parquetRows) next() (row Row, err error) {
	defer func() {
		if r := recover(); r != nil {
			row, err = Row{}, damaged("%v", r)
		}
	}()
	return p.row()
}

func (p *parquetRows) row() (Row, error) {
	for p.left == 0 {
		if err := p.endGroup(); err != nil {
			return Row{}, err
		}
		if p.group++; p.group >= len(p.file.groups) {
			return Row{}, io.EOF
		}
		g := p.file.groups[p.group]
		p.left, p.held, p.cursors = g.rows, 0, p.cursors[:0]
		for i, leaf := range p.file.leaves {
			p.cursors = append(p.cursors, newCursor(p, leaf, g.chunks[i]))
		}
	}
	p.left--
	p.data, p.wrong, p.passed = p.data[:0], nil, 0
	for _, c := range p.cursors {
		switch ok, err := c.ready(); {
		case err != nil:
			return Row{}, err
		case !ok:
			return Row{}, c.damaged("its values end before its rows")
		}
		if rep, _ := c.levels(); rep != 0 {
			return Row{}, c.damaged("a row begins inside a list")
		}
	}
	if err := p.object(p.file.root); err != nil {
		return Row{}, err
	}
	if p.wrong != nil {
		return Row{}, &RowError{0, p.wrong}
	}
	if len(p.data) > p.limit {
		return Row{}, tooLong(0, p.limit)
	}
	return Row{Data: p.data}, nil
}

// endGroup checks that the columns of a row group end with its rows.
func (p *parquetRows) endGroup() error {
	for _, c := range p.cursors {
		if more, err := c.ready(); err != nil {
			return err
		} else if more {
			return c.damaged("it has more values than its rows need")
		}
	}
	return nil
}

// write appends bytes to the row while they fit; one byte too many is enough to reject the row.
func (p *parquetRows) write(b ...byte) {
	if len(p.data) <= p.limit {
		p.data = append(p.data, b...)
	}
}

// object writes a group with its members. A struct has a member for every key that any row of the file has, so a null
// member is left out if leavesOut says so: the original row did not have it.
func (p *parquetRows) object(n *node) error {
	p.write('{')
	written := 0
	for _, child := range n.nodes {
		leave := n.parent != nil && leavesOut(child.name)
		if leave && child.repetition == optional {
			_, def, err := p.levels(child)
			if err != nil {
				return err
			}
			if def < child.def {
				if err := p.pass(child); err != nil {
					return err
				}
				continue
			}
		}
		before := len(p.data)
		if written > 0 {
			p.write(',')
		}
		p.write(child.key...)
		p.write(':')
		start := len(p.data)
		if err := p.value(child); err != nil {
			return err
		}
		// the library datasets writes the text null
		if leave && child.means == holdsJSON && string(p.data[start:]) == "null" {
			p.data = p.data[:before]
			continue
		}
		written++
	}
	p.write('}')
	return nil
}

// levels returns the next levels of a node's first leaf, which all its leaves share down to the node.
func (p *parquetRows) levels(n *node) (rep, def int, err error) {
	c := p.cursors[n.first]
	ok, err := c.ready()
	if err != nil {
		return 0, 0, err
	}
	if !ok {
		return 0, 0, c.damaged("its values end before its rows")
	}
	rep, def = c.levels()
	return rep, def, nil
}

// value writes a node with its repetition: null, a list, or the content.
func (p *parquetRows) value(n *node) error {
	if n.repetition == required {
		return p.content(n)
	}
	_, def, err := p.levels(n)
	switch {
	case err != nil:
		return err
	case n.repetition == repeated:
		return p.list(n, n, p.content)
	case def < n.def:
		p.write('n', 'u', 'l', 'l')
		return p.pass(n)
	}
	return p.content(n)
}

// content writes a node that is present.
func (p *parquetRows) content(n *node) error {
	switch {
	case !n.group:
		return p.leaf(n)
	case n.isListOf():
		item := n.item()
		if item == n.nodes[0] {
			return p.list(item, item, p.content)
		}
		return p.list(n.nodes[0], item, p.value)
	case n.isMapOf():
		return p.pairs(n.nodes[0])
	}
	return p.object(n)
}

// list writes the elements of a repeated node.
func (p *parquetRows) list(n, item *node, write func(*node) error) error {
	p.write('[')
	return p.each(n, func(i int) error {
		if i > 0 {
			p.write(',')
		}
		return write(item)
	}, func() { p.write(']') })
}

// pairs writes a map as an object.
func (p *parquetRows) pairs(n *node) error {
	p.write('{')
	return p.each(n, func(i int) error {
		if i > 0 {
			p.write(',')
		}
		if err := p.leaf(n.nodes[0]); err != nil {
			return err
		}
		p.write(':')
		return p.value(n.nodes[1])
	}, func() { p.write('}') })
}

// each calls see for every repetition of a node, possibly none, and then end.
func (p *parquetRows) each(n *node, see func(i int) error, end func()) error {
	_, def, err := p.levels(n)
	if err != nil {
		return err
	}
	if def < n.def {
		end()
		return p.pass(n)
	}
	for i := 0; ; i++ {
		if len(p.data) > p.limit {
			if p.passed++; p.passed > p.limit {
				return endless(0, p.limit)
			}
		}
		if _, def, err := p.levels(n); err != nil {
			return err
		} else if def < n.def {
			return p.cursors[n.first].damaged("a list has an element that is not there")
		}
		if err := see(i); err != nil {
			return err
		}
		c := p.cursors[n.first]
		more, err := c.ready()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if rep, _ := c.levels(); rep != n.rep {
			break
		}
	}
	end()
	return nil
}

// pass consumes an absent node: one level in each of its leaves.
func (p *parquetRows) pass(n *node) error {
	for _, c := range p.cursors[n.first : n.first+n.leaves] {
		ok, err := c.ready()
		if err != nil {
			return err
		}
		if !ok {
			return c.damaged("its values end before its rows")
		}
		if _, def := c.levels(); def == c.leaf.def {
			return c.damaged("it has a value where its group has none")
		}
		c.pos++
	}
	return nil
}

// leaf writes one value.
func (p *parquetRows) leaf(n *node) error {
	c := p.cursors[n.first]
	ok, err := c.ready()
	if err != nil {
		return err
	}
	if !ok {
		return c.damaged("its values end before its rows")
	}
	_, def := c.levels()
	c.pos++
	if def < n.def {
		return c.damaged("it lacks a value where its group has one")
	}
	i := c.used
	c.used++
	if len(p.data) > p.limit {
		return nil
	}
	p.data, err = appendValue(p.data, n, &c.vals, i)
	if err != nil && p.wrong == nil {
		p.wrong = err
	}
	return nil
}
