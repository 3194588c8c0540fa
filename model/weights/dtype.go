package weights

import "fmt"

// DType is the element type of a tensor. Its values are in the order in which the safetensors crate sorts types,
// because Write orders tensors by it.
type DType uint8

// The element types that take whole bytes and are real numbers.
const (
	Bool DType = iota + 1
	U8
	I8
	F8E5M2
	F8E4M3
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	F64
	I64
	U64
)

var dtypes = map[DType]struct {
	name string
	size int
}{
	Bool: {"BOOL", 1}, U8: {"U8", 1}, I8: {"I8", 1}, F8E5M2: {"F8_E5M2", 1}, F8E4M3: {"F8_E4M3", 1},
	I16: {"I16", 2}, U16: {"U16", 2}, F16: {"F16", 2}, BF16: {"BF16", 2},
	I32: {"I32", 4}, U32: {"U32", 4}, F32: {"F32", 4},
	F64: {"F64", 8}, I64: {"I64", 8}, U64: {"U64", 8},
}

var dtypeByName = func() map[string]DType {
	byName := make(map[string]DType, len(dtypes))
	for d, info := range dtypes {
		byName[info.name] = d
	}
	return byName
}()

// ParseDType returns the type that a safetensors header calls name ("BF16").
func ParseDType(name string) (DType, error) {
	if d, ok := dtypeByName[name]; ok {
		return d, nil
	}
	return 0, fmt.Errorf("unknown dtype %q", name)
}

// String returns the type's name in a safetensors header.
func (d DType) String() string {
	if info, ok := dtypes[d]; ok {
		return info.name
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Size returns the bytes of one element, or 0 for an unknown type.
func (d DType) Size() int { return dtypes[d].size }
