// Package quant quantises frozen weights: it holds the storage schemes and the double quantisation of their scales.
//
// A scheme is one file that implements Scheme and one line in Schemes.
package quant

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Scheme is one storage format of a block of weights: codes, scaled by the
// block's largest magnitude (absmax).
type Scheme interface {
	// Name is the scheme's key in Schemes and its quant_type in a file.
	Name() string
	// Bits is the size of one code.
	Bits() int
	// BlockSizes lists the block sizes the scheme supports, in values; none where a row is a block.
	BlockSizes() []int
	// Nests tells whether the scales can be stored in 8 bits themselves.
	Nests() bool
	// Encode writes the codes of one block x, of at most a block size of values,
	// and returns its absmax, which is not finite if any value is not.
	// Four-bit codes are packed two a byte, the first in the high nibble; a
	// missing last one is the code of zero.
	Encode(codes []byte, x []float32) (absmax float32)
	// Decode writes the values of len(dst) codes.
	Decode(dst []float32, codes []byte, absmax float32)
	// Parts are the tensors that a weight of rows x cols is stored as under c, of this type.
	Parts(c Config, rows, cols int) []Part
}

// Tabled is a Scheme of four-bit codes into a table of values in [-1,1]: a code's value is one float32 product of
// its entry and absmax.
type Tabled interface {
	Scheme
	// Table is the value of every code; the caller must not write to it.
	Table() []float32
}

// Schemes lists every storage scheme by its name in the configuration.
var Schemes = map[string]Scheme{
	"nf4":  nf4{},
	"fp4":  fp4{},
	"int8": int8s{},
}

// Names returns the schemes' names, sorted.
func Names() []string {
	names := make([]string, 0, len(Schemes))
	for n := range Schemes {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Config is the section "quantization" of a run's configuration.
type Config struct {
	// Bits is the number of bits of a stored weight.
	Bits int `yaml:"bits" default:"4" resume:"fixed"`
	// Type is the storage format: nf4 is the 4-bit NormalFloat of QLoRA, fp4 a 4-bit float, int8 the row-wise 8-bit
	// integers of LLM.int8(). All activations are multiplied by dequantised weights, so int8 has no outlier threshold.
	Type string `yaml:"type" default:"nf4" resume:"fixed"`
	// BlockSize is the number of weights that share one scale. int8 ignores it: there each row has one scale.
	BlockSize int `yaml:"block_size" default:"64" resume:"fixed"`
	// DoubleQuant also quantises the scales, to 8 bits. int8 ignores it, as it has few scales.
	DoubleQuant bool `yaml:"double_quant" default:"true" resume:"fixed"`
	// Map is the table of scales that are stored in 8 bits: of a weight that is quantised already, its file's.
	Map NestedMap `yaml:"-" json:"-"`
}

// Default returns QLoRA's storage: 4-bit NF4, blocks of 64, double quantisation.
func Default() Config { return DefaultOf("nf4") }

// DefaultOf returns the storage of a scheme of Schemes where nothing else is said.
func DefaultOf(name string) Config {
	s := Schemes[name]
	return Config{Bits: s.Bits(), Type: name, BlockSize: 64, DoubleQuant: s.Nests()}
}

// ForBits returns the storage for a number of bits where nothing else is said.
func ForBits(bits int) Config {
	if bits == Schemes["int8"].Bits() {
		return DefaultOf("int8")
	}
	return Default()
}

// Choices returns the values of keys that the schemes decide.
func (Config) Choices() map[string][]string {
	return map[string][]string{
		"bits":       schemeNumbers(func(s Scheme) []int { return []int{s.Bits()} }),
		"type":       Names(),
		"block_size": schemeNumbers(Scheme.BlockSizes),
	}
}

// schemeNumbers gathers numbers of every storage scheme, sorted, each once.
func schemeNumbers(of func(Scheme) []int) []string {
	var numbers []int
	for _, s := range Schemes {
		numbers = append(numbers, of(s)...)
	}
	slices.Sort(numbers)
	var texts []string
	for _, n := range slices.Compact(numbers) {
		texts = append(texts, strconv.Itoa(n))
	}
	return texts
}

// Validate returns every problem of the section, each naming its key.
func (c Config) Validate() []error {
	var errs []error
	s, ok := Schemes[c.Type]
	if !ok {
		errs = append(errs, fmt.Errorf("quantization.type: %q is not supported; use %s", c.Type,
			strings.Join(Names(), " or ")))
		s = Schemes[Default().Type]
	}
	if c.Bits != s.Bits() {
		errs = append(errs, fmt.Errorf("quantization.bits: %d is not supported with type %s; use %d", c.Bits, s.Name(),
			s.Bits()))
	}
	if s.BlockSizes() != nil && !slices.Contains(s.BlockSizes(), c.BlockSize) {
		errs = append(errs, fmt.Errorf("quantization.block_size: %d is not supported with type %s; use one of %v",
			c.BlockSize, s.Name(), s.BlockSizes()))
	}
	if c.DoubleQuant && !s.Nests() {
		errs = append(errs,
			fmt.Errorf("quantization.double_quant: type %s has one scale a row, which stays as it is; write false",
				s.Name()))
	}
	return errs
}

// Block returns the number of weights of a row of so many that share one scale.
func (c Config) Block(cols int) int {
	if Schemes[c.Type].BlockSizes() == nil {
		return cols
	}
	return c.BlockSize
}
