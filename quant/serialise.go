package quant

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Tensor is one stored tensor of a serialised weight. DType is the
// SafeTensors name (F32 or U8); Data is little endian.
type Tensor struct {
	DType string
	Shape []int
	Data  []byte
}

// Names of the tensors that bitsandbytes stores beside a weight: each is the
// weight's own name and this suffix.
const (
	suffixAbsmax      = ".absmax"
	suffixTable       = ".quant_map"
	suffixAbsmax2     = ".nested_absmax"
	suffixNestedTable = ".nested_quant_map"
	suffixState       = ".quant_state.bitsandbytes__"
)

// maxState bounds the JSON of a quant_state; a real one has about 200 bytes.
const maxState = 1 << 16

// Serialise returns the matrix as bitsandbytes stores it, keyed by tensor
// name. name is the weight's ("….q_proj.weight"); dtype is the unquantised
// type as torch names it ("float32", "bfloat16").
func (p *Packed) Serialise(name, dtype string) map[string]Tensor {
	table := p.Scheme.Table()
	out := map[string]Tensor{
		name:               {"U8", []int{len(p.Codes), 1}, slices.Clone(p.Codes)},
		name + suffixTable: {"F32", []int{len(table)}, floatBytes(table)},
	}
	state := fmt.Sprintf(`{"quant_type": %q, "blocksize": %d, "dtype": %q, "shape": [%d, %d]`,
		p.Scheme.Name(), p.BlockSize, dtype, p.Rows, p.Cols)
	if p.Nested() {
		out[name+suffixAbsmax] = Tensor{"U8", []int{len(p.AbsmaxU8)}, slices.Clone(p.AbsmaxU8)}
		out[name+suffixAbsmax2] = Tensor{"F32", []int{len(p.Absmax2)}, floatBytes(p.Absmax2)}
		out[name+suffixNestedTable] = Tensor{"F32", []int{len(p.Table2)}, floatBytes(p.Table2)}
		state += fmt.Sprintf(`, "nested_blocksize": %d, "nested_dtype": "float32", "nested_offset": %s`,
			NestedBlock, pythonFloat(float64(p.Offset)))
	} else {
		out[name+suffixAbsmax] = Tensor{"F32", []int{len(p.Absmax)}, floatBytes(p.Absmax)}
	}
	state += "}"
	out[name+suffixState+p.Scheme.Name()] = Tensor{"U8", []int{len(state)}, []byte(state)}
	return out
}

// pythonFloat writes v as Python's repr does, so that the JSON is the same
// byte for byte.
func pythonFloat(v float64) string {
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// state is the JSON of quant_state; writers disagree on the order of its keys.
type state struct {
	QuantType       string  `json:"quant_type"`
	BlockSize       int     `json:"blocksize"`
	DType           string  `json:"dtype"`
	Shape           []int   `json:"shape"`
	NestedBlockSize int     `json:"nested_blocksize"`
	NestedDType     string  `json:"nested_dtype"`
	NestedOffset    float64 `json:"nested_offset"`
}

// IsSerialised tells whether the weight name is stored in 4 bits among tensors:
// it has a quant_state of some scheme.
func IsSerialised(name string, has func(string) bool) bool {
	for _, s := range Names() {
		if has(name + suffixState + s) {
			return true
		}
	}
	return false
}

// SerialisedNames lists the tensors that belong to a stored weight, its own
// name first, for a reader that must account for every name in a file.
func SerialisedNames(name string) []string {
	names := []string{name, name + suffixAbsmax, name + suffixTable, name + suffixAbsmax2, name + suffixNestedTable}
	for _, s := range Names() {
		names = append(names, name+suffixState+s)
	}
	return names
}

// Deserialise reads a matrix that bitsandbytes stored under name; get returns
// a tensor by its full name. A table of codes that differs from the scheme's
// own, and sizes that do not fit the shape, are errors. Data is copied.
func Deserialise(name string, get func(string) (Tensor, bool)) (Packed, error) {
	p, err := deserialise(name, get)
	if err != nil {
		return Packed{}, fmt.Errorf("read quantised weight %s: %w", name, err)
	}
	return p, nil
}

func deserialise(name string, get func(string) (Tensor, bool)) (Packed, error) {
	var p Packed
	var st state
	for _, s := range Names() {
		raw, ok := get(name + suffixState + s)
		if !ok {
			continue
		}
		if len(raw.Data) > maxState {
			return p, fmt.Errorf("quant_state of %d bytes is too large", len(raw.Data))
		}
		if err := json.Unmarshal(raw.Data, &st); err != nil {
			return p, fmt.Errorf("quant_state: %w", err)
		}
		if st.QuantType != s {
			return p, fmt.Errorf("quant_state of %s says quant_type %q", s, st.QuantType)
		}
		p.Scheme = Schemes[s]
	}
	if p.Scheme == nil {
		return p, fmt.Errorf("no tensor %s%s; supported types: %s", name, suffixState, strings.Join(Names(), ", "))
	}
	if !slices.Contains(p.Scheme.BlockSizes(), st.BlockSize) {
		return p, fmt.Errorf("block size %d is not supported with %s; supported: %v", st.BlockSize, st.QuantType, p.Scheme.BlockSizes())
	}
	if len(st.Shape) != 2 {
		return p, fmt.Errorf("shape %v is not a matrix's", st.Shape)
	}
	p.BlockSize, p.Rows, p.Cols = st.BlockSize, st.Shape[0], st.Shape[1]

	codes, err := tensorOf(get, name, "U8")
	if err != nil {
		return p, err
	}
	p.Codes = slices.Clone(codes)
	if err := tableIs(get, name+suffixTable, p.Scheme.Table()); err != nil {
		return p, err
	}
	if st.NestedBlockSize == 0 {
		p.Absmax, err = floatsOf(get, name+suffixAbsmax)
	} else {
		err = p.readNested(name, get, st)
	}
	if err != nil {
		return p, err
	}
	return p, p.Check()
}

func (p *Packed) readNested(name string, get func(string) (Tensor, bool), st state) error {
	if st.NestedBlockSize != NestedBlock {
		return fmt.Errorf("nested block size %d is not supported; use %d", st.NestedBlockSize, NestedBlock)
	}
	var err error
	if p.Table2, err = floatsOf(get, name+suffixNestedTable); err != nil {
		return err
	}
	if slices.Equal(p.Table2, NestedTable[:]) {
		p.Table2 = NestedTable[:] // one copy for all weights
	}
	codes, err := tensorOf(get, name+suffixAbsmax, "U8")
	if err != nil {
		return err
	}
	p.AbsmaxU8 = slices.Clone(codes)
	p.Absmax2, err = floatsOf(get, name+suffixAbsmax2)
	p.Offset = float32(st.NestedOffset)
	return err
}

func tensorOf(get func(string) (Tensor, bool), name, dtype string) ([]byte, error) {
	t, ok := get(name)
	if !ok {
		return nil, fmt.Errorf("tensor %s is missing", name)
	}
	if t.DType != dtype {
		return nil, fmt.Errorf("tensor %s is %s, want %s", name, t.DType, dtype)
	}
	return t.Data, nil
}

// floatsOf reads an F32 tensor; never nil without an error.
func floatsOf(get func(string) (Tensor, bool), name string) ([]float32, error) {
	data, err := tensorOf(get, name, "F32")
	if err != nil {
		return nil, err
	}
	if len(data)%4 != 0 {
		return nil, fmt.Errorf("tensor %s has %d bytes, not whole float32 values", name, len(data))
	}
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out, nil
}

func tableIs(get func(string) (Tensor, bool), name string, want []float32) error {
	have, err := floatsOf(get, name)
	if err != nil {
		return err
	}
	if !slices.Equal(have, want) {
		return fmt.Errorf("tensor %s is another table than this scheme's; its values would be decoded wrongly", name)
	}
	return nil
}

func floatBytes(x []float32) []byte {
	out := make([]byte, 0, 4*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
