package tower

import (
	"context"
	"fmt"

	"github.com/tierlora/tierlora/vision"
)

// siglipVision is what vision_config of config.json says of a SigLIP tower.
type siglipVision struct {
	Hidden     int     `json:"hidden_size"`
	Inner      int     `json:"intermediate_size"`
	Layers     int     `json:"num_hidden_layers"`
	Heads      int     `json:"num_attention_heads"`
	Channels   int     `json:"num_channels"`
	Image      int     `json:"image_size"`
	Patch      int     `json:"patch_size"`
	Activation string  `json:"hidden_act"`
	Eps        float64 `json:"layer_norm_eps"`
}

// check refuses what the tower cannot compute.
func (v siglipVision) check() error {
	if err := checkSizes(size{"vision_config.hidden_size", v.Hidden}, size{"vision_config.intermediate_size", v.Inner},
		size{"vision_config.num_hidden_layers", v.Layers}, size{"vision_config.num_attention_heads", v.Heads},
		size{"vision_config.image_size", v.Image}, size{"vision_config.patch_size", v.Patch}); err != nil {
		return err
	}
	switch {
	case v.Channels != 3:
		return fmt.Errorf("config.json: vision_config.num_channels = %d: supported is 3", v.Channels)
	case v.Activation != "gelu_pytorch_tanh":
		return fmt.Errorf("config.json: vision_config.hidden_act = %q: supported is gelu_pytorch_tanh", v.Activation)
	case v.Hidden%v.Heads != 0:
		return fmt.Errorf("config.json: vision_config.hidden_size = %d is no multiple of num_attention_heads = %d",
			v.Hidden, v.Heads)
	}
	return nil
}

// siglip is a SigLIP tower (Zhai et al. 2023) of square tiles: patches, a table of positions, and pre-norm layers whose
// attention sees all patches. A projector makes an embedding of the patches of a token, which are group x group
// neighbours and lie together.
type siglip struct {
	siglipVision
	arithmetic
	scope     string  // of the tower's tensors
	tile      int     // pixels of a side of a tile
	grid      int     // patches of a side of a tile
	order     []place // [grid²] patches, the patches of a token lying together
	positions []int32 // [grid²] rows of the table of positions, in the order of order
	levels    [3][256]float32
	width     int // numbers of an embedding
	// project returns the embeddings [tokens, width] of normed patches in the order of order.
	project func(x []float32) []float32
}

// newSigLIP returns the tower of tiles that a processor makes, without its tensors and its projector. row returns the
// row, or column, of the table of positions for a row, or column, of the grid.
func newSigLIP(v siglipVision, scope string, p vision.Processor, tile, group int, row func(i int) int32) *siglip {
	t := &siglip{siglipVision: v, arithmetic: newArithmetic(), scope: scope, tile: tile, grid: tile / v.Patch,
		levels: levelsOf(p)}
	t.order = patchesOf(t.grid, t.grid, group)
	for _, at := range t.order {
		t.positions = append(t.positions, row(at.row)*int32(v.Image/v.Patch)+row(at.col))
	}
	return t
}

// Names of the tower's tensors after its scope.
const (
	siglipPatches  = "embeddings.patch_embedding"
	siglipTable    = "embeddings.position_embedding.weight"
	siglipLastNorm = "post_layernorm"
)

func (t *siglip) layer(i int) string { return fmt.Sprintf("%sencoder.layers.%d.", t.scope, i) }

// readAll reads all tensors as float32: the tower's, and others with their shapes.
func (t *siglip) readAll(from Source, others map[string][]int) error {
	v, side, shapes := t.siglipVision, t.Image/t.Patch, others
	shapes[t.scope+siglipPatches+".weight"] = []int{v.Hidden, v.Channels, v.Patch, v.Patch}
	shapes[t.scope+siglipPatches+".bias"] = []int{v.Hidden}
	shapes[t.scope+siglipTable] = []int{side * side, v.Hidden}
	norm := func(name string) {
		shapes[name+".weight"], shapes[name+".bias"] = []int{v.Hidden}, []int{v.Hidden}
	}
	norm(t.scope + siglipLastNorm)
	for i := range v.Layers {
		for name, out := range map[string][2]int{"self_attn.q_proj": {v.Hidden, v.Hidden},
			"self_attn.k_proj": {v.Hidden, v.Hidden}, "self_attn.v_proj": {v.Hidden, v.Hidden},
			"self_attn.out_proj": {v.Hidden, v.Hidden}, "mlp.fc1": {v.Inner, v.Hidden},
			"mlp.fc2": {v.Hidden, v.Inner}} {
			shapes[t.layer(i)+name+".weight"], shapes[t.layer(i)+name+".bias"] = out[:], out[:1]
		}
		norm(t.layer(i) + "layer_norm1")
		norm(t.layer(i) + "layer_norm2")
	}
	return t.read(from, shapes)
}

// Width returns the numbers of an embedding.
func (t *siglip) Width() int { return t.width }

// Embed returns the embeddings of an image's tokens [tiles * tokens, Width], in the order of its tiles.
func (t *siglip) Embed(ctx context.Context, tiles []*vision.RGB) ([]float32, error) {
	var all []float32
	for _, tile := range tiles {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if tile.Width != t.tile || tile.Height != t.tile {
			return nil, fmt.Errorf("a tile has %d x %d pixels, want %d", tile.Width, tile.Height, t.tile)
		}
		all = append(all, t.project(t.patches(tile))...)
	}
	return all, nil
}

// patches returns the normed results of the last layer for the patches of a tile.
func (t *siglip) patches(m *vision.RGB) []float32 {
	v := t.siglipVision
	n := len(t.order)
	x := t.linear(t.scope+siglipPatches, pixelsOf(m, t.order, v.Patch, 1, t.levels),
		n, v.Channels*v.Patch*v.Patch, v.Hidden)
	for i, p := range t.positions {
		add(x[i*v.Hidden:][:v.Hidden], t.tensors[t.scope+siglipTable][int(p)*v.Hidden:])
	}
	for i := range v.Layers {
		at := t.layer(i)
		h := t.norm(at+"layer_norm1", x, v.Hidden, v.Eps)
		heads := t.attention(t.linear(at+"self_attn.q_proj", h, n, v.Hidden, v.Hidden),
			t.linear(at+"self_attn.k_proj", h, n, v.Hidden, v.Hidden),
			t.linear(at+"self_attn.v_proj", h, n, v.Hidden, v.Hidden), n, v.Hidden, v.Hidden, v.Heads)
		add(x, t.linear(at+"self_attn.out_proj", heads, n, v.Hidden, v.Hidden))
		h = t.linear(at+"mlp.fc1", t.norm(at+"layer_norm2", x, v.Hidden, v.Eps), n, v.Hidden, v.Inner)
		t.rows(n, func(i int) { gelu(h[i*v.Inner:][:v.Inner]) })
		add(x, t.linear(at+"mlp.fc2", h, n, v.Inner, v.Hidden))
	}
	return t.norm(t.scope+siglipLastNorm, x, v.Hidden, v.Eps)
}
