package export

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// storedTensors quantises a merged matrix and returns the tensors in which bitsandbytes stores it. The file needs the
// scales before the codes.
func (m *merging) storedTensors(ctx context.Context, name string, t weights.Tensor) ([]weights.Tensor, error) {
	p, err := m.packCounted(ctx, name, t)
	if err != nil {
		return nil, err
	}
	table := p.Scheme.(quant.Tabled).Table()
	all := []weights.Tensor{{Name: t.Name, DType: weights.U8, Shape: []int{len(p.Codes), 1}}}
	floats := func(suffix string, v []float32) error {
		made, err := weights.FromFloat32s(t.Name+suffix, weights.F32, []int{len(v)}, v)
		m.parts[made.Name] = made.Data
		all = append(all, made)
		return err
	}
	bytes := func(suffix string, data []byte) {
		made := weights.Tensor{Name: t.Name + suffix, DType: weights.U8, Shape: []int{len(data)}}
		m.parts[made.Name] = append([]byte(nil), data...)
		all = append(all, made)
	}
	if err := floats(".quant_map", table); err != nil {
		return nil, err
	}
	if p.Nested() {
		bytes(".absmax", p.AbsmaxU8)
		if err := floats(".nested_absmax", p.Absmax2); err != nil {
			return nil, err
		}
		if err := floats(".nested_quant_map", p.Table2); err != nil {
			return nil, err
		}
	} else if err := floats(".absmax", p.Absmax); err != nil {
		return nil, err
	}
	bytes(".quant_state.bitsandbytes__"+p.Scheme.Name(), quantState(p))
	return all, nil
}

// quantState returns bitsandbytes' JSON object for a weight, as Python writes it.
func quantState(p quant.Packed) []byte {
	state := fmt.Sprintf(`{"quant_type": "%s", "blocksize": %d, "dtype": "bfloat16", "shape": [%d, %d]`,
		p.Scheme.Name(), p.BlockSize, p.Rows, p.Cols)
	if p.Nested() {
		state += fmt.Sprintf(`, "nested_blocksize": %d, "nested_dtype": "float32", "nested_offset": %s`,
			quant.NestedBlock, pythonFloat(float64(p.Offset)))
	}
	return []byte(state + "}")
}

// pythonFloat formats a number as Python's json does: the shortest text that reads back, with an exponent below 1e-4.
func pythonFloat(x float64) string {
	if x != 0 && (x < 1e-4 && x > -1e-4) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if x == float64(int64(x)) {
		text += ".0"
	}
	return text
}

// packMerged returns a matrix with its update in NF4. Where the update is zero it keeps the base's codes.
func (m *merging) packMerged(ctx context.Context, name string, t weights.Tensor) (quant.Packed, error) {
	if _, ok := m.updates[layer(name)]; !ok {
		if p, ok := m.s.Base.Tensors().Packed(name); ok && p.Scheme.Name() == NF4 {
			return p, nil
		}
	}
	return m.pack(&m.quantiser, t, m.nf4(), func(add func([]float32) error) error {
		return m.each(ctx, name, func(_ int, _, merged []float32) error { return add(merged) })
	})
}

// packCounted does what packMerged does and counts the rounding loss: the difference between the dequantised sum and
// the dequantised base, against the update.
func (m *merging) packCounted(ctx context.Context, name string, t weights.Tensor) (merged quant.Packed, err error) {
	if _, ok := m.updates[layer(name)]; !ok {
		return m.packMerged(ctx, name, t)
	}
	base, err := m.pack(&m.plain, t, m.nf4(), func(add func([]float32) error) error {
		merged, err = m.pack(&m.quantiser, t, m.nf4(), func(addMerged func([]float32) error) error {
			return m.each(ctx, name, func(_ int, base, merged []float32) error {
				if err := addMerged(merged); err != nil {
					return err
				}
				return add(base)
			})
		})
		return err
	})
	if err != nil {
		return merged, err
	}
	counts := &layerCounts{}
	table := merged.Scheme.(quant.Tabled).Table()
	gap := float64(table[len(table)-1]-table[0]) / float64(len(table)-1)
	err = m.each(ctx, name, func(at int, b, s []float32) error {
		m.count(counts, len(b), func(c *layerCounts, from, to int) {
			was, then := m.was[from:to], m.then[from:to]
			base.DequantiseRange(was, at+from, at+to)
			merged.DequantiseRange(then, at+from, at+to)
			c.add(b[from:to], s[from:to], was, then, func(i int, _ float32) float64 {
				return gap / 2 * float64(base.Scale((at+from+i)/base.BlockSize))
			})
		})
		return nil
	})
	m.lost[layer(name)] = counts
	return merged, err
}

// nf4 returns the folder's quantisation: the base's if that is quantised already.
func (m *merging) nf4() quant.Config {
	c := quant.Default()
	if q := m.s.Base.Config.Quantization; q != nil && q.Type == NF4 {
		c.DoubleQuant = q.DoubleQuant
	}
	return c
}

// bitsandbytes returns quantization_config as transformers writes it.
func bitsandbytes(c quant.Config, skip []string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"_load_in_4bit": true, "_load_in_8bit": false, "bnb_4bit_compute_dtype": "bfloat16",
		"bnb_4bit_quant_storage": "uint8",
		"bnb_4bit_quant_type":    c.Type, "bnb_4bit_use_double_quant": c.DoubleQuant,
		"llm_int8_enable_fp32_cpu_offload": false,
		// transformers wants a float
		"llm_int8_has_fp16_weight": false, "llm_int8_skip_modules": skip, "llm_int8_threshold": json.Number("6.0"),
		"load_in_4bit": true,
		"load_in_8bit": false, "quant_method": "bitsandbytes",
	})
}
