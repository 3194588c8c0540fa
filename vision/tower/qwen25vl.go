package tower

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/vision"
)

// qwen25VLText is what config.json of Qwen2.5-VL says of the language model: in text_config, or beside vision_config in
// older files.
type qwen25VLText struct {
	Hidden  int  `json:"hidden_size"`
	Heads   int  `json:"num_attention_heads"`
	Params  rope `json:"rope_parameters"`
	Scaling rope `json:"rope_scaling"`
}

// qwen25VLConfig is what config.json of Qwen2.5-VL says of the images.
type qwen25VLConfig struct {
	Text   *qwen25VLText `json:"text_config"`
	Vision struct {
		Hidden     int       `json:"hidden_size"`
		Inner      int       `json:"intermediate_size"`
		Layers     int       `json:"depth"`
		Heads      int       `json:"num_heads"`
		Channels   int       `json:"in_channels"`
		Older      *int      `json:"in_chans"` // the channels in older files
		Patch      int       `json:"patch_size"`
		Merge      int       `json:"spatial_merge_size"`
		Temporal   int       `json:"temporal_patch_size"`
		Out        int       `json:"out_hidden_size"`
		Window     int       `json:"window_size"`
		Full       []int     `json:"fullatt_block_indexes"`
		Activation string    `json:"hidden_act"`
		Rope       axialRope `json:"rope_parameters"`
	} `json:"vision_config"`
}

// parseQwen25VL reads config.json; absent keys have transformers' defaults.
func parseQwen25VL(file []byte) (c qwen25VLConfig, err error) {
	v := &c.Vision
	v.Hidden, v.Inner, v.Layers, v.Heads, v.Channels, v.Patch, v.Merge, v.Temporal = 3584, 3420, 32, 16, 3, 14, 2, 2
	v.Out, v.Window, v.Full, v.Activation = 3584, 112, []int{7, 15, 23, 31}, "silu"
	v.Rope.Theta, v.Rope.Type = 10000, "axial"
	text := qwen25VLText{Hidden: 8192, Heads: 64}
	c.Text = &text
	if err := json.Unmarshal(file, &c); err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	var nested struct {
		Text json.RawMessage `json:"text_config"`
	}
	if err := json.Unmarshal(file, &nested); err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	if nested.Text == nil {
		if err := json.Unmarshal(file, &text); err != nil {
			return c, fmt.Errorf("config.json: %w", err)
		}
	}
	if c.Text == nil {
		c.Text = &text
	}
	if v.Older != nil {
		v.Channels = *v.Older
	}
	if err := checkSizes(size{"hidden_size", c.Text.Hidden}, size{"num_attention_heads", c.Text.Heads},
		size{"vision_config.hidden_size", v.Hidden}, size{"vision_config.intermediate_size", v.Inner},
		size{"vision_config.depth", v.Layers}, size{"vision_config.num_heads", v.Heads},
		size{"vision_config.patch_size", v.Patch}, size{"vision_config.spatial_merge_size", v.Merge},
		size{"vision_config.temporal_patch_size", v.Temporal}, size{"vision_config.out_hidden_size", v.Out},
		size{"vision_config.window_size", v.Window}); err != nil {
		return c, err
	}
	switch {
	case v.Channels != 3:
		return c, fmt.Errorf("config.json: vision_config.in_channels = %d: supported is 3", v.Channels)
	case v.Activation != "silu":
		return c, fmt.Errorf("config.json: vision_config.hidden_act = %q: supported is silu", v.Activation)
	case v.Hidden%(4*v.Heads) != 0:
		return c, fmt.Errorf("config.json: vision_config.hidden_size = %d is no multiple of four times num_heads = %d",
			v.Hidden, v.Heads)
	case v.Window/v.Merge/v.Patch < 1:
		return c, fmt.Errorf("config.json: vision_config.window_size = %d: a token has %d x %d pixels", v.Window,
			v.Patch*v.Merge, v.Patch*v.Merge)
	case v.Out != c.Text.Hidden:
		return c, fmt.Errorf("config.json: vision_config.out_hidden_size = %d, hidden_size = %d: must be equal", v.Out,
			c.Text.Hidden)
	}
	return c, v.Rope.check()
}

// describeQwen25VL finds how positions turn.
func describeQwen25VL(file []byte, d *Description) error {
	c, err := parseQwen25VL(file)
	if err != nil {
		return err
	}
	d.Contiguous = true
	if d.Sections, err = sectionsOf(c.Text.Params, c.Text.Scaling, [3]int{16, 24, 24}); err != nil {
		return err
	}
	s := d.Sections
	if half := c.Text.Hidden / c.Text.Heads / 2; s[0]+s[1]+s[2] != half {
		return fmt.Errorf("config.json: mrope_section = %v: the sum must be %d, half of a head's size", s, half)
	}
	return nil
}

// qwen25VL is the image part of Qwen2.5-VL: patches of an image of any size with rotary angles of rows and columns,
// pre-norm layers whose attention sees a window or, in some layers, the whole image, and a merger that makes a token's
// embedding of neighbouring patches.
type qwen25VL struct {
	qwen25VLConfig
	arithmetic
	processor *vision.Patched
	scope     string // of tensors
}

// openQwen25VL reads the image part of Qwen2.5-VL.
func openQwen25VL(file []byte, from Source, p *vision.Patched) (*qwen25VL, error) {
	c, err := parseQwen25VL(file)
	if err != nil {
		return nil, err
	}
	v := c.Vision
	if err := checkPatches(p, v.Patch, v.Merge, v.Temporal); err != nil {
		return nil, err
	}
	t := &qwen25VL{c, newArithmetic(), p, scopeOf(from, "patch_embed.proj.weight", qwenScope, "visual.")}
	return t, t.readAll(from)
}

func (t *qwen25VL) at(layer int) string { return fmt.Sprintf("%sblocks.%d.", t.scope, layer) }

// readAll reads all tensors as float32.
func (t *qwen25VL) readAll(from Source) error {
	v := t.Vision
	merged := v.Hidden * v.Merge * v.Merge
	shapes := map[string][]int{
		t.scope + "patch_embed.proj.weight": {v.Hidden, v.Channels, v.Temporal, v.Patch, v.Patch},
		t.scope + "merger.ln_q.weight":      {v.Hidden}}
	linear := func(name string, out, in int) {
		shapes[name+".weight"], shapes[name+".bias"] = []int{out, in}, []int{out}
	}
	linear(t.scope+"merger.mlp.0", merged, merged)
	linear(t.scope+"merger.mlp.2", v.Out, merged)
	for i := range v.Layers {
		at := t.at(i)
		shapes[at+"norm1.weight"], shapes[at+"norm2.weight"] = []int{v.Hidden}, []int{v.Hidden}
		linear(at+"attn.qkv", 3*v.Hidden, v.Hidden)
		linear(at+"attn.proj", v.Hidden, v.Hidden)
		linear(at+"mlp.gate_proj", v.Inner, v.Hidden)
		linear(at+"mlp.up_proj", v.Inner, v.Hidden)
		linear(at+"mlp.down_proj", v.Hidden, v.Inner)
	}
	return t.read(from, shapes)
}

// Width returns the numbers of a token's row.
func (t *qwen25VL) Width() int { return t.Vision.Out }

// Embed returns the embeddings of an image, which is one tile.
func (t *qwen25VL) Embed(ctx context.Context, tiles []*vision.RGB) ([]float32, error) {
	v := t.Vision
	m, err := onlyTile(tiles, v.Patch*v.Merge)
	if err != nil {
		return nil, err
	}
	rows, cols := m.Height/v.Patch, m.Width/v.Patch
	tokens, ends := windowsOf(rows/v.Merge, cols/v.Merge, v.Window/v.Merge/v.Patch)
	of, each := patchesOf(rows, cols, v.Merge), v.Merge*v.Merge
	order := make([]place, 0, len(of))
	for _, token := range tokens {
		order = append(order, of[token*each:(token+1)*each]...)
	}
	for i := range ends {
		ends[i] *= each
	}
	n := len(order)
	x := t.linear(t.scope+"patch_embed.proj", pixelsOf(m, order, v.Patch, v.Temporal, levelsOf(t.processor)),
		n, v.Channels*v.Temporal*v.Patch*v.Patch, v.Hidden)
	angles := anglesOf(order, axialFrequencies(v.Rope.Theta, v.Hidden/v.Heads/4))
	for i := range v.Layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if slices.Contains(v.Full, i) {
			t.layer(t.at(i), x, angles, []int{n})
		} else {
			t.layer(t.at(i), x, angles, ends)
		}
	}
	merged := t.merge(x, len(tokens))
	out := make([]float32, len(merged))
	for i, token := range tokens {
		copy(out[token*v.Out:], merged[i*v.Out:][:v.Out])
	}
	return out, nil
}

// windowsOf returns the tokens of a grid window by window, row by row within each, and where each window ends. Windows
// have side x side tokens, and fewer at the right and at the bottom.
func windowsOf(rows, cols, side int) (tokens, ends []int) {
	for top := 0; top < rows; top += side {
		for left := 0; left < cols; left += side {
			for r := top; r < min(top+side, rows); r++ {
				for c := left; c < min(left+side, cols); c++ {
					tokens = append(tokens, r*cols+c)
				}
			}
			ends = append(ends, len(tokens))
		}
	}
	return tokens, ends
}

// layer applies a layer to patches in place. Attention sees the patches up to the next of ends.
func (t *qwen25VL) layer(at string, x []float32, angles [2][]float32, ends []int) {
	v := t.Vision
	n, apart := len(x)/v.Hidden, 3*v.Hidden
	qkv := t.linear(at+"attn.qkv", t.rmsNorm(x, t.tensors[at+"norm1.weight"], layerNormEps, 0), n, v.Hidden, apart)
	half := v.Hidden / v.Heads / 2
	t.rows(n, func(i int) {
		turn(qkv[apart*i:][:2*v.Hidden], 2*v.Heads, angles[0][i*half:][:half], angles[1][i*half:][:half])
	})
	heads, from := make([]float32, 0, len(x)), 0
	for _, end := range ends {
		some := qkv[from*apart : end*apart]
		heads = append(heads, t.attention(some, some[v.Hidden:], some[2*v.Hidden:], end-from, apart, v.Hidden,
			v.Heads)...)
		from = end
	}
	add(x, t.linear(at+"attn.proj", heads, n, v.Hidden, v.Hidden))
	normed := t.rmsNorm(x, t.tensors[at+"norm2.weight"], layerNormEps, 0)
	gate := t.linear(at+"mlp.gate_proj", normed, n, v.Hidden, v.Inner)
	up := t.linear(at+"mlp.up_proj", normed, n, v.Hidden, v.Inner)
	t.rows(n, func(i int) {
		row := gate[i*v.Inner:][:v.Inner]
		silu(row)
		for j, u := range up[i*v.Inner:][:v.Inner] {
			row[j] *= u
		}
	})
	add(x, t.linear(at+"mlp.down_proj", gate, n, v.Inner, v.Hidden))
}

// merge returns what the merger makes of the patches of each token [tokens, Out].
func (t *qwen25VL) merge(x []float32, tokens int) []float32 {
	at, merged := t.scope+"merger.", len(x)/tokens
	h := t.linear(at+"mlp.0", t.rmsNorm(x, t.tensors[at+"ln_q.weight"], layerNormEps, 0), tokens, merged, merged)
	t.rows(tokens, func(i int) { geluErf(h[i*merged:][:merged]) })
	return t.linear(at+"mlp.2", h, tokens, merged, t.Vision.Out)
}
