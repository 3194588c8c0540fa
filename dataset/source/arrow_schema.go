package source

import (
	"fmt"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/words"
)

// arrowField is a column, or a member or element of a column.
type arrowField struct {
	name, path string
	key        []byte // the name as JSON
	kind       uint8  // type of the column, one of Arrow's types
	bits       int    // bits of a number
	signed     bool
	size       int // elements of a fixed-size list, or bytes of a fixed-size value
	scale      int // scale of a decimal
	unit       int // unit of a time as digits of a second: 0, 3, 6 or 9
	utc        bool
	json       bool // the text is JSON
	coded      bool // the values are indices into a dictionary
	dictionary int64
	index      *arrowField // type of the indices
	children   []*arrowField
}

func (r *arrowRows) readSchema(schema flatTable) error {
	if schema.i16(0, 0) != 0 {
		return &FileError{0, "the Arrow file is big-endian: write it on a computer of these days, or as Parquet"}
	}
	fields, err := r.readFields(schema.vector(1, 4), "", 0, new(int))
	switch {
	case schema.f == nil || schema.f.err != nil:
		return arrowDamaged("%v", errFlat)
	case err != nil:
		return err
	case len(fields) == 0:
		return arrowDamaged("it has no columns")
	}
	r.fields = fields
	return nil
}

// readFields reads columns or members; seen counts all fields.
func (r *arrowRows) readFields(v flatVector, path string, depth int, seen *int) ([]*arrowField, error) {
	if depth > maxSchemaDepth {
		return nil, &FileError{0, fmt.Sprintf("the columns of the Arrow file are nested deeper than %d levels",
			maxSchemaDepth)}
	}
	var fields []*arrowField
	names := map[string]bool{}
	for i := range v.n {
		if *seen++; *seen > maxSchema {
			return nil, &FileError{0, fmt.Sprintf("the Arrow file has more than %d columns", maxSchema)}
		}
		table := v.table(i)
		f := &arrowField{name: table.text(0), kind: table.u8(2, 0)}
		if f.path = words.Clip(f.name, maxShown); path != "" {
			f.path = path + "." + f.path
		}
		if !utf8.ValidString(f.name) {
			return nil, arrowDamaged("the name of a column is not UTF-8")
		}
		f.key = appendString(nil, []byte(f.name))
		if err := f.readType(table.table(3)); err != nil {
			return nil, err
		}
		if coding := table.table(4); coding.at > 0 {
			f.coded, f.dictionary = true, coding.i64(0)
			f.index = &arrowField{path: f.path, kind: arrowInt, bits: 32, signed: true}
			if t := coding.table(1); t.at > 0 {
				if err := f.index.readType(t); err != nil {
					return nil, err
				}
			}
		}
		for k, pairs := 0, table.vector(6, 4); k < min(pairs.n, maxSchema); k++ {
			if pair := pairs.table(k); pair.text(0) == arrowExtension {
				f.json = pair.text(1) == arrowJSON
			}
		}
		var err error
		if f.children, err = r.readFields(table.vector(5, 4), f.path, depth+1, seen); err != nil {
			return nil, err
		}
		if table.f.err != nil {
			return nil, arrowDamaged("%v", table.f.err)
		}
		if err := f.check(); err != nil {
			return nil, err
		}
		if names[f.name] && depth == 0 {
			return nil, &FileError{0, fmt.Sprintf("the Arrow file has two columns %q", f.path)}
		}
		names[f.name] = true
		fields = append(fields, f)
	}
	return fields, nil
}

// readType reads the parameters of a type.
func (f *arrowField) readType(t flatTable) error {
	units := [4]int{0, 3, 6, 9}
	unit := func(absent int16) int { return units[t.i16(0, absent)&3] }
	switch f.kind {
	case arrowInt:
		f.bits, f.signed = int(t.i32(0, 0)), t.u8(1, 0) != 0
	case arrowFloat:
		f.bits = 16 << (t.i16(0, 0) & 3)
	case arrowDecimal:
		f.scale, f.bits = int(t.i32(1, 0)), int(t.i32(2, 128))
	case arrowDate:
		if f.bits = 64; t.i16(0, 1) == 0 {
			f.bits = 32
		}
	case arrowTime:
		f.unit, f.bits = unit(1), int(t.i32(1, 32))
	case arrowTimestamp:
		f.unit, f.bits, f.utc = unit(0), 64, t.text(1) != ""
	case arrowDuration:
		f.bits = 64
	case arrowFixed, arrowFixedList:
		f.size = int(t.i32(0, 0))
	}
	if name := arrowTypeNames[f.kind]; name != "" {
		return &FileError{0, fmt.Sprintf("column %q of the Arrow file is of the type %s, which is not read: save the "+
			"rows as Parquet or JSONL, or without it", f.path, name)}
	}
	return nil
}

// check rejects parameters that Arrow does not allow.
func (f *arrowField) check() error {
	ok, children := true, 0
	switch f.kind {
	case arrowNull, arrowBool, arrowBinary, arrowText, arrowBigBinary, arrowBigText:
	case arrowInt:
		ok = f.bits == 8 || f.bits == 16 || f.bits == 32 || f.bits == 64
	case arrowFloat:
		ok = f.bits <= 64
	case arrowDecimal:
		ok = f.bits > 0 && f.bits%8 == 0 && f.bits/8 <= maxArrowDecimal
	case arrowDate, arrowTimestamp, arrowDuration:
	case arrowTime:
		ok = f.bits == 32 || f.bits == 64
	case arrowFixed:
		ok = f.size >= 0
	case arrowList, arrowBigList:
		children = 1
	case arrowFixedList:
		ok, children = f.size >= 0, 1
	case arrowMap:
		if children = 1; len(f.children) == 1 {
			ok = f.children[0].kind == arrowStruct && !f.children[0].coded && len(f.children[0].children) == 2
		}
	case arrowStruct:
		children = len(f.children)
		names := map[string]bool{}
		for _, c := range f.children {
			if names[c.name] {
				return &FileError{0, fmt.Sprintf("the Arrow file has two columns %q", c.path)}
			}
			names[c.name] = true
		}
	default:
		return arrowDamaged("column %q is of the unknown type %d", f.path, f.kind)
	}
	if i := f.index; i != nil && i.bits != 8 && i.bits != 16 && i.bits != 32 && i.bits != 64 {
		ok = false
	}
	if !ok || len(f.children) != children {
		return arrowDamaged("column %q is not what its type %d allows", f.path, f.kind)
	}
	return nil
}
