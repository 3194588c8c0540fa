package tower

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/vision"
)

// qwen3VLConfig is what config.json of Qwen3-VL says of the images.
type qwen3VLConfig struct {
	Text struct {
		Hidden  int  `json:"hidden_size"`
		Layers  int  `json:"num_hidden_layers"`
		Params  rope `json:"rope_parameters"`
		Scaling rope `json:"rope_scaling"` // its name before transformers 5
	} `json:"text_config"`
	Vision struct {
		Hidden     int       `json:"hidden_size"`
		Inner      int       `json:"intermediate_size"`
		Layers     int       `json:"depth"`
		Heads      int       `json:"num_heads"`
		Channels   int       `json:"in_channels"`
		Patch      int       `json:"patch_size"`
		Merge      int       `json:"spatial_merge_size"`
		Temporal   int       `json:"temporal_patch_size"`
		Out        int       `json:"out_hidden_size"`
		Positions  int       `json:"num_position_embeddings"`
		Deep       []int     `json:"deepstack_visual_indexes"`
		Activation string    `json:"hidden_act"`
		Rope       axialRope `json:"rope_parameters"`
	} `json:"vision_config"`
}

// parseQwen3VL reads config.json; absent keys have transformers' defaults.
func parseQwen3VL(file []byte) (c qwen3VLConfig, err error) {
	v := &c.Vision
	v.Hidden, v.Inner, v.Layers, v.Heads, v.Channels, v.Patch, v.Merge, v.Temporal = 1152, 4304, 27, 16, 3, 16, 2, 2
	v.Out, v.Positions, v.Deep, v.Activation = 3584, 2304, []int{8, 16, 24}, "gelu_pytorch_tanh"
	v.Rope.Theta, v.Rope.Type = 10000, "axial"
	c.Text.Hidden, c.Text.Layers = 4096, 32
	if err := json.Unmarshal(file, &c); err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	if err := checkSizes(size{"text_config.hidden_size", c.Text.Hidden},
		size{"vision_config.hidden_size", v.Hidden}, size{"vision_config.intermediate_size", v.Inner},
		size{"vision_config.depth", v.Layers}, size{"vision_config.num_heads", v.Heads},
		size{"vision_config.patch_size", v.Patch}, size{"vision_config.spatial_merge_size", v.Merge},
		size{"vision_config.temporal_patch_size", v.Temporal}, size{"vision_config.out_hidden_size", v.Out},
		size{"vision_config.num_position_embeddings", v.Positions}); err != nil {
		return c, err
	}
	side := int(math.Sqrt(float64(v.Positions)))
	switch {
	case v.Channels != 3:
		return c, fmt.Errorf("config.json: vision_config.in_channels = %d: supported is 3", v.Channels)
	case v.Activation != "gelu_pytorch_tanh":
		return c, fmt.Errorf("config.json: vision_config.hidden_act = %q: supported is gelu_pytorch_tanh", v.Activation)
	case v.Hidden%(4*v.Heads) != 0:
		return c, fmt.Errorf("config.json: vision_config.hidden_size = %d is no multiple of four times num_heads = %d",
			v.Hidden, v.Heads)
	case side*side != v.Positions:
		return c, fmt.Errorf("config.json: vision_config.num_position_embeddings = %d is no square", v.Positions)
	case v.Out != c.Text.Hidden:
		return c, fmt.Errorf("config.json: vision_config.out_hidden_size = %d, text_config.hidden_size = %d: must be "+
			"equal", v.Out, c.Text.Hidden)
	case len(v.Deep) > c.Text.Layers:
		return c, fmt.Errorf("config.json: vision_config.deepstack_visual_indexes has %d layers, the language model %d",
			len(v.Deep), c.Text.Layers)
	}
	for i, at := range v.Deep {
		if at < 0 || at >= v.Layers || slices.Index(v.Deep, at) < i {
			return c, fmt.Errorf("config.json: vision_config.deepstack_visual_indexes = %v: must be different layers "+
				"below depth = %d", v.Deep, v.Layers)
		}
	}
	return c, v.Rope.check()
}

// describeQwen3VL finds which layers add embeddings, and how positions turn.
func describeQwen3VL(file []byte, d *Description) error {
	c, err := parseQwen3VL(file)
	if err != nil {
		return err
	}
	d.Added = len(c.Vision.Deep)
	d.Sections, err = sectionsOf(c.Text.Params, c.Text.Scaling, [3]int{24, 20, 20})
	return err
}

// qwen3VL is the image part of Qwen3-VL: patches of an image of any size, a table of positions that is interpolated to
// its grid and rotary angles of rows and columns, pre-norm layers whose attention sees the whole image, and mergers
// that make a token's embedding of neighbouring patches: of the last layer, and of the layers that deepstack names.
type qwen3VL struct {
	qwen3VLConfig
	arithmetic
	processor *vision.Patched
}

// openQwen3VL reads the image part of Qwen3-VL.
func openQwen3VL(file []byte, from Source, p *vision.Patched) (*qwen3VL, error) {
	c, err := parseQwen3VL(file)
	if err != nil {
		return nil, err
	}
	if err := checkPatches(p, c.Vision.Patch, c.Vision.Merge, c.Vision.Temporal); err != nil {
		return nil, err
	}
	t := &qwen3VL{qwen3VLConfig: c, arithmetic: newArithmetic(), processor: p}
	return t, t.readAll(from)
}

const (
	qwenScope   = "model.visual."
	qwenPatches = qwenScope + "patch_embed.proj"
	qwenTable   = qwenScope + "pos_embed.weight"
	qwenMerger  = qwenScope + "merger."
)

func qwenLayer(i int) string { return fmt.Sprintf("%sblocks.%d.", qwenScope, i) }

func qwenDeepMerger(i int) string { return fmt.Sprintf("%sdeepstack_merger_list.%d.", qwenScope, i) }

// readAll reads all tensors as float32.
func (t *qwen3VL) readAll(from Source) error {
	v := t.Vision
	shapes := map[string][]int{qwenPatches + ".weight": {v.Hidden, v.Channels, v.Temporal, v.Patch, v.Patch},
		qwenPatches + ".bias": {v.Hidden}, qwenTable: {v.Positions, v.Hidden}}
	linear := func(name string, out, in int) {
		shapes[name+".weight"], shapes[name+".bias"] = []int{out, in}, []int{out}
	}
	norm := func(name string, width int) {
		shapes[name+".weight"], shapes[name+".bias"] = []int{width}, []int{width}
	}
	for i := range v.Layers {
		at := qwenLayer(i)
		norm(at+"norm1", v.Hidden)
		norm(at+"norm2", v.Hidden)
		linear(at+"attn.qkv", 3*v.Hidden, v.Hidden)
		linear(at+"attn.proj", v.Hidden, v.Hidden)
		linear(at+"mlp.linear_fc1", v.Inner, v.Hidden)
		linear(at+"mlp.linear_fc2", v.Hidden, v.Inner)
	}
	merged := v.Hidden * v.Merge * v.Merge
	merger := func(at string, normed int) {
		norm(at+"norm", normed)
		linear(at+"linear_fc1", merged, merged)
		linear(at+"linear_fc2", v.Out, merged)
	}
	merger(qwenMerger, v.Hidden)
	for i := range v.Deep {
		merger(qwenDeepMerger(i), merged)
	}
	return t.read(from, shapes)
}

// Width returns the numbers of a token's row.
func (t *qwen3VL) Width() int { return t.Vision.Out * (1 + len(t.Vision.Deep)) }

// layerNormEps is what LayerNorm adds to the variance.
const layerNormEps = 1e-6

// Embed returns the embeddings of an image, which is one tile.
func (t *qwen3VL) Embed(ctx context.Context, tiles []*vision.RGB) ([]float32, error) {
	v := t.Vision
	m, err := onlyTile(tiles, v.Patch*v.Merge)
	if err != nil {
		return nil, err
	}
	order := patchesOf(m.Height/v.Patch, m.Width/v.Patch, v.Merge)
	n := len(order)
	x := t.linear(qwenPatches, pixelsOf(m, order, v.Patch, v.Temporal, levelsOf(t.processor)),
		n, v.Channels*v.Temporal*v.Patch*v.Patch, v.Hidden)
	t.addPositions(x, m, order)
	angles := anglesOf(order, axialFrequencies(v.Rope.Theta, v.Hidden/v.Heads/4))
	tokens := n / (v.Merge * v.Merge)
	out := make([]float32, tokens*t.Width())
	for i := range v.Layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t.layer(qwenLayer(i), x, n, angles)
		if k := slices.Index(v.Deep, i); k >= 0 {
			t.merge(qwenDeepMerger(k), x, tokens, true, out[(1+k)*v.Out:])
		}
	}
	t.merge(qwenMerger, x, tokens, false, out)
	return out, nil
}

// addPositions adds the table of positions, whose corners lie on the image's corners, bilinearly interpolated.
func (t *qwen3VL) addPositions(x []float32, m *vision.RGB, order []place) {
	v := t.Vision
	side := int(math.Sqrt(float64(v.Positions)))
	rows, cols := tapsOf(m.Height/v.Patch, side), tapsOf(m.Width/v.Patch, side)
	table := t.tensors[qwenTable]
	t.rows(len(order), func(i int) {
		to, sum := x[i*v.Hidden:][:v.Hidden], make([]float32, v.Hidden)
		for _, r := range rows[order[i].row] {
			for _, c := range cols[order[i].col] {
				weight := r.weight * c.weight
				for j, e := range table[(r.at*side+c.at)*v.Hidden:][:v.Hidden] {
					sum[j] += e * weight
				}
			}
		}
		add(to, sum)
	})
}

// tap is a neighbour in the table of positions and its weight.
type tap struct {
	at     int
	weight float32
}

// tapsOf returns the two neighbours of each of n places along a side of the table, in the arithmetic of torch.
func tapsOf(n, side int) [][2]tap {
	all := make([][2]tap, n)
	for i := range all {
		at := float32(i) * float32(side-1) / float32(max(n-1, 1))
		first := float32(math.Floor(float64(at)))
		for k := range all[i] {
			all[i][k] = tap{min(int(first)+k, side-1),
				max(0, 1-float32(math.Abs(float64(at-first-float32(k)))))}
		}
	}
	return all
}

// layer applies a layer to n patches in place.
func (t *qwen3VL) layer(at string, x []float32, n int, angles [2][]float32) {
	v := t.Vision
	qkv := t.linear(at+"attn.qkv", t.norm(at+"norm1", x, v.Hidden, layerNormEps), n, v.Hidden, 3*v.Hidden)
	half := v.Hidden / v.Heads / 2
	t.rows(n, func(i int) {
		turn(qkv[3*v.Hidden*i:][:2*v.Hidden], 2*v.Heads, angles[0][i*half:][:half], angles[1][i*half:][:half])
	})
	heads := t.attention(qkv, qkv[v.Hidden:], qkv[2*v.Hidden:], n, 3*v.Hidden, v.Hidden, v.Heads)
	add(x, t.linear(at+"attn.proj", heads, n, v.Hidden, v.Hidden))
	h := t.linear(at+"mlp.linear_fc1", t.norm(at+"norm2", x, v.Hidden, layerNormEps), n, v.Hidden, v.Inner)
	t.rows(n, func(i int) { gelu(h[i*v.Inner:][:v.Inner]) })
	add(x, t.linear(at+"mlp.linear_fc2", h, n, v.Inner, v.Hidden))
}

// merge writes what a merger makes of the patches of each token to rows of to, which are Width apart. after norms the
// patches of a token as one row.
func (t *qwen3VL) merge(at string, x []float32, tokens int, after bool, to []float32) {
	v := t.Vision
	width, merged := v.Hidden, v.Hidden*v.Merge*v.Merge
	if after {
		width = merged
	}
	h := t.linear(at+"linear_fc1", t.norm(at+"norm", x, width, layerNormEps), tokens, merged, merged)
	t.rows(tokens, func(i int) { geluErf(h[i*merged:][:merged]) })
	y := t.linear(at+"linear_fc2", h, tokens, merged, v.Out)
	for i := range tokens {
		copy(to[i*t.Width():], y[i*v.Out:][:v.Out])
	}
}
