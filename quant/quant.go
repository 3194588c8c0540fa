// Package quant is how frozen weights are stored: the schemes and the double
// quantisation of their scales.
//
// A scheme is one file that implements Scheme and one line in Schemes.
package quant

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Scheme is one storage format of a block of weights: codes into a table of
// values in [-1,1], scaled by the block's largest magnitude (absmax).
type Scheme interface {
	// Name is the scheme's key in Schemes and its quant_type in a file.
	Name() string
	// Bits is the size of one code.
	Bits() int
	// BlockSizes lists the block sizes the scheme supports, in values.
	BlockSizes() []int
	// Table is the value of every code; the caller must not write to it.
	Table() []float32
	// Encode writes the codes of one block x, of at most a block size of values,
	// and returns its absmax, which is not finite if any value is not.
	// Four-bit codes are packed two a byte, the first in the high nibble; a
	// missing last one is the code of zero.
	Encode(codes []byte, x []float32) (absmax float32)
	// Decode writes dst[i] = Table()[code i] * absmax, one float32 product.
	Decode(dst []float32, codes []byte, absmax float32)
	// Parts are the tensors that a weight of rows x cols is stored as under c, of this type.
	Parts(c Config, rows, cols int) []Part
}

// Schemes lists every storage scheme by its name in the configuration.
var Schemes = map[string]Scheme{
	"nf4": nf4{},
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
	// Bits of a stored weight.
	Bits int `yaml:"bits" mapstructure:"bits"`
	// Type is the storage scheme; nf4 is QLoRA's 4-bit NormalFloat.
	Type string `yaml:"type" mapstructure:"type"`
	// BlockSize is the number of weights that share one scale.
	BlockSize int `yaml:"block_size" mapstructure:"block_size"`
	// DoubleQuant stores the scales themselves in 8 bits.
	DoubleQuant bool `yaml:"double_quant" mapstructure:"double_quant"`
}

// Default is QLoRA's storage: 4-bit NF4, blocks of 64, double quantisation.
func Default() Config {
	return Config{Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: true}
}

// Validate returns every problem of the section, each naming its key.
func (c Config) Validate() []error {
	var errs []error
	s, ok := Schemes[c.Type]
	if !ok {
		errs = append(errs, fmt.Errorf("quantization.type: %q is not supported; use %s", c.Type, strings.Join(Names(), " or ")))
		s = Schemes[Default().Type]
	}
	if c.Bits != s.Bits() {
		errs = append(errs, fmt.Errorf("quantization.bits: %d is not supported with type %s; use %d", c.Bits, s.Name(), s.Bits()))
	}
	if !slices.Contains(s.BlockSizes(), c.BlockSize) {
		errs = append(errs, fmt.Errorf("quantization.block_size: %d is not supported with type %s; use one of %v", c.BlockSize, s.Name(), s.BlockSizes()))
	}
	return errs
}
