package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"
)

var littleEndianHost = func() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 1
}()

// Float32s converts all of t (F64, F32, F16 or BF16) into dst, whose length
// must be t.Len(). F32, F16 and BF16 are exact, F64 rounds to nearest even.
func Float32s(t Tensor, dst []float32) error {
	if n := t.Len(); len(dst) != n {
		return fmt.Errorf("convert %q: %d elements into %d", t.Name, n, len(dst))
	}
	return Float32Range(t, 0, len(dst), dst)
}

// Float32Range converts elements from (inclusive) to to (exclusive) of t into dst[:to-from]. Goroutines may convert
// disjoint ranges concurrently.
func Float32Range(t Tensor, from, to int, dst []float32) error {
	src, err := t.slice(from, to, len(dst))
	if err != nil {
		return err
	}
	dst = dst[:to-from]
	switch t.DType {
	case F32:
		float32sFromF32(dst, src)
	case BF16:
		float32sFromBF16(dst, src)
	case F16:
		for i := range dst {
			dst[i] = f16ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	default:
		return fmt.Errorf("convert %q: %s is not a floating-point type that converts to float32", t.Name, t.DType)
	}
	return nil
}

// ViewFloat32s returns the numbers of an F32 tensor, or nil for another type. The result aliases Data if Data has the
// machine's layout, else it is a copy. It is read-only and valid as long as Data is.
func ViewFloat32s(t Tensor) []float32 {
	if t.DType != F32 || len(t.Data) < 4 {
		return nil
	}
	if littleEndianHost && uintptr(unsafe.Pointer(&t.Data[0]))%4 == 0 {
		return unsafe.Slice((*float32)(unsafe.Pointer(&t.Data[0])), len(t.Data)/4)
	}
	v := make([]float32, len(t.Data)/4)
	float32sFromF32(v, t.Data)
	return v
}

// Raw copies stored elements of t (little endian), beginning at element from, until dst is full. Goroutines may copy
// disjoint ranges concurrently.
func Raw(t Tensor, from int, dst []byte) error {
	if n := t.DType.Size(); n == 0 || len(dst)%n != 0 {
		return fmt.Errorf("read %q: %d bytes are no whole number of %s", t.Name, len(dst), t.DType)
	}
	n := len(dst) / t.DType.Size()
	src, err := t.slice(from, from+n, n)
	if err != nil {
		return err
	}
	copy(dst, src)
	return nil
}

// Float64s converts all of t (F64, F32, F16 or BF16) exactly into dst, whose
// length must be t.Len().
func Float64s(t Tensor, dst []float64) error {
	if n := t.Len(); len(dst) != n {
		return fmt.Errorf("convert %q: %d elements into %d", t.Name, n, len(dst))
	}
	src, err := t.slice(0, len(dst), len(dst))
	if err != nil {
		return err
	}
	if t.DType == F64 {
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:]))
		}
		return nil
	}
	single := make([]float32, len(dst))
	if err := Float32s(t, single); err != nil {
		return err
	}
	for i, v := range single {
		dst[i] = float64(v)
	}
	return nil
}

// Int64s converts all of t (any integer type but U64, or BOOL) into dst, whose
// length must be t.Len().
func Int64s(t Tensor, dst []int64) error {
	if n := t.Len(); len(dst) != n {
		return fmt.Errorf("convert %q: %d elements into %d", t.Name, n, len(dst))
	}
	src, err := t.slice(0, len(dst), len(dst))
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	for i := range dst {
		switch t.DType {
		case I64:
			dst[i] = int64(le.Uint64(src[8*i:]))
		case I32:
			dst[i] = int64(int32(le.Uint32(src[4*i:])))
		case U32:
			dst[i] = int64(le.Uint32(src[4*i:]))
		case I16:
			dst[i] = int64(int16(le.Uint16(src[2*i:])))
		case U16:
			dst[i] = int64(le.Uint16(src[2*i:]))
		case I8:
			dst[i] = int64(int8(src[i]))
		case U8, Bool:
			dst[i] = int64(src[i])
		default:
			return fmt.Errorf("convert %q: %s is not an integer type that fits int64", t.Name, t.DType)
		}
	}
	return nil
}

// FromFloat32s makes a tensor of type F64, F32, F16 or BF16 from v, rounding to
// nearest even.
func FromFloat32s(name string, d DType, shape []int, v []float32) (Tensor, error) {
	t := Tensor{Name: name, DType: d, Shape: shape}
	size, ok := byteSize(d, shape)
	if !ok || size != uint64(len(v))*uint64(d.Size()) {
		return Tensor{}, fmt.Errorf("make tensor %q: %d values for shape %v", name, len(v), shape)
	}
	var err error
	t.Data, err = AppendFloat32s(make([]byte, 0, size), d, v)
	if err != nil {
		return Tensor{}, fmt.Errorf("make tensor %q: %w", name, err)
	}
	return t, nil
}

// AppendFloat32s appends v as elements of type F64, F32, F16 or BF16, rounded to nearest even.
func AppendFloat32s(dst []byte, d DType, v []float32) ([]byte, error) {
	le := binary.LittleEndian
	at := len(dst)
	dst = slices.Grow(dst, len(v)*d.Size())[:at+len(v)*d.Size()]
	to := dst[at:]
	switch d {
	case F64:
		for i, x := range v {
			le.PutUint64(to[8*i:], math.Float64bits(float64(x)))
		}
	case F32:
		for i, x := range v {
			le.PutUint32(to[4*i:], math.Float32bits(x))
		}
	case F16:
		for i, x := range v {
			le.PutUint16(to[2*i:], float32ToF16(x))
		}
	case BF16:
		for i, x := range v {
			le.PutUint16(to[2*i:], float32ToBF16(x))
		}
	default:
		return nil, fmt.Errorf("float32 values cannot be stored as %s", d)
	}
	return dst, nil
}

// RoundFloat32s writes the values of v rounded to F32, F16 or BF16.
func RoundFloat32s(dst []float32, d DType, v []float32) {
	for i, x := range v {
		switch d {
		case F16:
			dst[i] = f16ToFloat32(float32ToF16(x))
		case BF16:
			dst[i] = math.Float32frombits(uint32(float32ToBF16(x)) << 16)
		default:
			dst[i] = x
		}
	}
}

// slice returns the bytes of elements from..to, of which dst can take limit.
func (t Tensor) slice(from, to, limit int) ([]byte, error) {
	size, ok := byteSize(t.DType, t.Shape)
	if !ok || t.DType.Size() == 0 || size != uint64(len(t.Data)) {
		return nil, fmt.Errorf("convert %q: %d bytes of data for %s of shape %v", t.Name, len(t.Data), t.DType, t.Shape)
	}
	if from < 0 || to < from || to > t.Len() || to-from > limit {
		return nil, fmt.Errorf("convert %q: elements %d to %d of %d into %d", t.Name, from, to, t.Len(), limit)
	}
	n := t.DType.Size()
	return t.Data[from*n : to*n], nil
}

func float32sFromF32(dst []float32, src []byte) {
	if len(dst) == 0 {
		return
	}
	if littleEndianHost {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
		return
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// float32sFromBF16 reads four values per load, because memory bandwidth limits the conversion.
func float32sFromBF16(dst []float32, src []byte) {
	i := 0
	for ; i+4 <= len(dst); i += 4 {
		w := binary.LittleEndian.Uint64(src[2*i : 2*i+8])
		d := dst[i : i+4 : i+4]
		d[0] = math.Float32frombits(uint32(w) << 16)
		d[1] = math.Float32frombits(uint32(w) & 0xffff0000)
		d[2] = math.Float32frombits(uint32(w>>32) << 16)
		d[3] = math.Float32frombits(uint32(w>>32) & 0xffff0000)
	}
	for ; i < len(dst); i++ {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// f16ToFloat32 shifts the fields into place; one exact multiplication by 2^112 then corrects the exponent's bias, for
// subnormals too.
func f16ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	rest := uint32(h&0x7fff) << 13
	if h&0x7c00 == 0x7c00 {
		return math.Float32frombits(sign | 0x7f800000 | rest) // infinity, NaN
	}
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(rest)*0x1p112))
}

func float32ToF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, abs := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13)&0x3ff
	case abs >= 0x477ff000: // 65520, the midpoint above the largest value
		return sign | 0x7c00
	case abs < 0x38800000: // below 2^-14: adding 0.5 rounds at the bit of a subnormal
		return sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((abs-0x38000000+0xfff+(abs>>13)&1)>>13)
}

func float32ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40 // rounding must not turn a NaN into infinity
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}
