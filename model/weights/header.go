package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

const (
	maxHeader   = 100_000_000 // bytes; the limit of the safetensors crate
	maxRank     = 8
	metadataKey = "__metadata__"
)

type entry struct {
	name       string
	dtype      DType
	shape      []int
	begin, end uint64 // offsets in the data after the header
}

// parse reads and checks a whole file: every byte belongs to the header or to exactly one tensor, and every tensor's
// size equals its type's size times its shape.
func parse(file []byte) (*File, error) {
	if len(file) < 8 {
		return nil, fmt.Errorf("the file has %d bytes, too few for the 8 byte header length", len(file))
	}
	n := binary.LittleEndian.Uint64(file)
	if n > maxHeader {
		return nil, fmt.Errorf("the header claims %d bytes, more than the allowed %d", n, maxHeader)
	}
	if n > uint64(len(file)-8) {
		return nil,
			fmt.Errorf("the header claims %d bytes but only %d follow: the file is cut short or not safetensors",
				n, len(file)-8)
	}
	header, data := file[8:8+n], file[8+n:]
	if !utf8.Valid(header) {
		return nil, errors.New("the header is not valid UTF-8")
	}
	if len(header) == 0 || header[0] != '{' {
		return nil, errors.New("the header does not start with '{'")
	}
	p := headerParser{dec: json.NewDecoder(bytes.NewReader(header))}
	p.dec.UseNumber()
	if wrong := jsonerr.Check(header); wrong != nil {
		return nil, fmt.Errorf("header: byte %d: %s", wrong.Offset+1, wrong.Text)
	}
	if err := p.header(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := p.layout(uint64(len(data))); err != nil {
		return nil, err
	}
	f := &File{tensors: make(map[string]Tensor, len(p.entries)), meta: p.meta}
	for _, e := range p.entries {
		f.tensors[e.name] = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, Data: data[e.begin:e.end:e.end]}
	}
	return f, nil
}

type headerParser struct {
	dec     *json.Decoder
	entries []entry
	meta    map[string]string
}

func (p *headerParser) header() error {
	err := p.object(func(key string) (err error) {
		if key == metadataKey {
			p.meta, err = p.metadata()
		} else {
			err = p.tensor(key)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
		return nil
	})
	return err
}

// object reads {"key": value, ...}; each must read the value.
func (p *headerParser) object(each func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for p.dec.More() {
		tok, err := p.token()
		if err != nil {
			return err
		}
		key, ok := tok.(string)
		if !ok {
			return fmt.Errorf("expected a name, found %s", p.shown(tok))
		}
		if seen[key] {
			return fmt.Errorf("duplicate name %q", key)
		}
		seen[key] = true
		if err := each(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

func (p *headerParser) metadata() (map[string]string, error) {
	meta := make(map[string]string)
	return meta, p.object(func(key string) (err error) {
		meta[key], err = p.str()
		return err
	})
}

func (p *headerParser) tensor(name string) error {
	e := entry{name: name}
	var hasType, hasShape, hasOffsets bool
	err := p.object(func(key string) error {
		switch key {
		case "dtype":
			hasType = true
			s, err := p.str()
			if err != nil {
				return fmt.Errorf("dtype: %w", err)
			}
			e.dtype, err = ParseDType(s)
			return err
		case "shape":
			hasShape = true
			dims, err := p.numbers(maxRank)
			if err != nil {
				return fmt.Errorf("shape: %w", err)
			}
			e.shape = make([]int, len(dims))
			for i, d := range dims {
				if d > math.MaxInt {
					return fmt.Errorf("shape: dimension %d is too large", d)
				}
				e.shape[i] = int(d)
			}
			return nil
		case "data_offsets":
			hasOffsets = true
			o, err := p.numbers(2)
			if err != nil {
				return fmt.Errorf("data_offsets: %w", err)
			}
			if len(o) != 2 {
				return fmt.Errorf("data_offsets has %d numbers, expected 2", len(o))
			}
			e.begin, e.end = o[0], o[1]
			return nil
		}
		return fmt.Errorf("unknown field %q", key)
	})
	if err != nil {
		return err
	}
	if !hasType || !hasShape || !hasOffsets {
		return errors.New("dtype, shape and data_offsets are all needed")
	}
	p.entries = append(p.entries, e)
	return nil
}

// layout checks that the tensors cover total bytes exactly once.
func (p *headerParser) layout(total uint64) error {
	slices.SortFunc(p.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	var at uint64
	last := ""
	for _, e := range p.entries {
		size, ok := byteSize(e.dtype, e.shape)
		switch {
		case !ok:
			return fmt.Errorf("tensor %q: the size of shape %v overflows", e.name, e.shape)
		case e.end < e.begin:
			return fmt.Errorf("tensor %q: data_offsets [%d,%d] run backwards", e.name, e.begin, e.end)
		case e.end-e.begin != size:
			return fmt.Errorf("tensor %q: %s of shape %v takes %d bytes, data_offsets [%d,%d] give %d",
				e.name, e.dtype, e.shape, size, e.begin, e.end, e.end-e.begin)
		case e.end > total:
			return fmt.Errorf("tensor %q: data_offsets [%d,%d] lie beyond the %d bytes of data: the file is cut short",
				e.name, e.begin, e.end, total)
		case e.begin < at:
			return fmt.Errorf("tensors %q and %q overlap at data offset %d", last, e.name, e.begin)
		case e.begin > at:
			return fmt.Errorf("gap of %d bytes before tensor %q", e.begin-at, e.name)
		}
		at, last = e.end, e.name
	}
	if at != total {
		return fmt.Errorf("%d bytes after the last tensor belong to none", total-at)
	}
	return nil
}

// byteSize returns the bytes of a tensor; ok is false on overflow.
func byteSize(d DType, shape []int) (uint64, bool) {
	size := uint64(d.Size())
	for _, n := range shape {
		if n < 0 {
			return 0, false
		}
		hi, lo := bits.Mul64(size, uint64(n))
		if hi != 0 || lo > math.MaxInt {
			return 0, false
		}
		size = lo
	}
	return size, true
}

func (p *headerParser) token() (json.Token, error) {
	tok, err := p.dec.Token() // the JSON was checked before
	if err != nil {
		return nil, fmt.Errorf("byte %d: %w", p.dec.InputOffset()+1, err)
	}
	return tok, nil
}

var delims = map[json.Delim]string{'{': "an object", '[': "a list"}

// shown formats the last token and its position.
func (p *headerParser) shown(tok json.Token) string {
	text := fmt.Sprint(tok)
	switch tok := tok.(type) {
	case string:
		text = strconv.Quote(tok)
	case json.Delim:
		text = delims[tok]
	case nil:
		text = "null"
	}
	return fmt.Sprintf("%s (byte %d)", text, p.dec.InputOffset())
}

func (p *headerParser) delim(want json.Delim) error {
	tok, err := p.token()
	if err == nil && tok != want {
		err = fmt.Errorf("expected %s, found %s", delims[want], p.shown(tok))
	}
	return err
}

func (p *headerParser) str() (string, error) {
	tok, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("expected a string, found %s", p.shown(tok))
	}
	return s, nil
}

// numbers reads a list of at most limit non-negative integers.
func (p *headerParser) numbers(limit int) ([]uint64, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	list := []uint64{}
	for p.dec.More() {
		tok, err := p.token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("expected a number, found %s", p.shown(tok))
		}
		v, err := strconv.ParseUint(num.String(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not a non-negative integer of 64 bits", num)
		}
		if len(list) == limit {
			return nil, fmt.Errorf("more than %d numbers", limit)
		}
		list = append(list, v)
	}
	return list, p.delim(']')
}
