package tower

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/vision"
)

// siglipConfig is what config.json of SmolVLM and Idefics 3 says of the images.
type siglipConfig struct {
	Scale int `json:"scale_factor"`
	Text  struct {
		Hidden int `json:"hidden_size"`
	} `json:"text_config"`
	Vision struct {
		Hidden     int     `json:"hidden_size"`
		Inner      int     `json:"intermediate_size"`
		Layers     int     `json:"num_hidden_layers"`
		Heads      int     `json:"num_attention_heads"`
		Channels   int     `json:"num_channels"`
		Image      int     `json:"image_size"`
		Patch      int     `json:"patch_size"`
		Activation string  `json:"hidden_act"`
		Eps        float64 `json:"layer_norm_eps"`
	} `json:"vision_config"`
}

// parseSigLIP reads config.json; absent keys have transformers' defaults.
func parseSigLIP(file []byte) (c siglipConfig, err error) {
	c.Scale = 2
	v := &c.Vision
	v.Hidden, v.Inner, v.Layers, v.Heads, v.Channels, v.Image, v.Patch = 1152, 3072, 12, 16, 3, 224, 32
	v.Activation, v.Eps = "gelu_pytorch_tanh", 1e-6
	if err := json.Unmarshal(file, &c); err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	if err := checkSizes(size{"scale_factor", c.Scale}, size{"text_config.hidden_size", c.Text.Hidden},
		size{"vision_config.hidden_size", v.Hidden}, size{"vision_config.intermediate_size", v.Inner},
		size{"vision_config.num_hidden_layers", v.Layers}, size{"vision_config.num_attention_heads", v.Heads},
		size{"vision_config.image_size", v.Image}, size{"vision_config.patch_size", v.Patch}); err != nil {
		return c, err
	}
	switch {
	case v.Channels != 3:
		return c, fmt.Errorf("config.json: vision_config.num_channels = %d: supported is 3", v.Channels)
	case v.Activation != "gelu_pytorch_tanh":
		return c, fmt.Errorf("config.json: vision_config.hidden_act = %q: supported is gelu_pytorch_tanh", v.Activation)
	case v.Hidden%v.Heads != 0:
		return c, fmt.Errorf("config.json: vision_config.hidden_size = %d is no multiple of num_attention_heads = %d",
			v.Hidden, v.Heads)
	}
	return c, nil
}

// describeSigLIP checks a config.json.
func describeSigLIP(file []byte, _ *Description) error {
	_, err := parseSigLIP(file)
	return err
}

// siglip is the image part of SmolVLM and Idefics 3: a SigLIP tower (Zhai et al. 2023) of patches of a tile, a table of
// positions, and pre-norm layers whose attention sees all patches. The projector puts neighbouring patches side by side
// (pixel shuffle) and multiplies them with one matrix.
type siglip struct {
	siglipConfig
	arithmetic
	processor *vision.Tiled
	grid      int     // patches of a side of a tile
	positions []int32 // [grid²] rows of the table of positions, in the order of order
	order     []int32 // [grid²] patches, row by row, the patches of a token lying together
}

// openSigLIP reads the image part of SmolVLM or Idefics 3.
func openSigLIP(file []byte, from Source, p *vision.Tiled) (*siglip, error) {
	c, err := parseSigLIP(file)
	if err != nil {
		return nil, err
	}
	t := &siglip{siglipConfig: c, arithmetic: newArithmetic(), processor: p, grid: p.Tile / c.Vision.Patch}
	side := c.Vision.Image / c.Vision.Patch
	if t.grid == 0 || t.grid%c.Scale != 0 || t.grid*t.grid/(c.Scale*c.Scale) != p.Tokens {
		return nil, fmt.Errorf("a tile of %d pixels has %d x %d patches of %d, which scale_factor %d makes no %d "+
			"tokens of (image_seq_len)", p.Tile, t.grid, t.grid, c.Vision.Patch, c.Scale, p.Tokens)
	}
	t.lay(side)
	return t, t.readAll(from, side)
}

// lay numbers the patches so that those that the projector puts side by side follow one another, and finds their
// positions in a table for side x side patches.
func (t *siglip) lay(side int) {
	bucket := make([]int32, t.grid)
	for i := range bucket {
		at := min(float32(i)*(1/float32(t.grid)), float32(1-1e-6))
		for b := 1; b < side; b++ { // torch.bucketize with right=True over arange(1/side, 1, 1/side)
			if float32(float64(b)/float64(side)) <= at {
				bucket[i] = int32(b)
			}
		}
	}
	for r := 0; r < t.grid; r += t.Scale {
		for c := 0; c < t.grid; c += t.Scale {
			for y := r; y < r+t.Scale; y++ {
				for x := c; x < c+t.Scale; x++ {
					t.order = append(t.order, int32(y*t.grid+x))
					t.positions = append(t.positions, bucket[y]*int32(side)+bucket[x])
				}
			}
		}
	}
}

const (
	siglipScope = "model.vision_model."
	projector   = "model.connector.modality_projection.proj.weight"
	patches     = siglipScope + "embeddings.patch_embedding"
	table       = siglipScope + "embeddings.position_embedding.weight"
	lastNorm    = siglipScope + "post_layernorm"
)

func siglipLayer(i int) string { return fmt.Sprintf("%sencoder.layers.%d.", siglipScope, i) }

// readAll reads all tensors as float32.
func (t *siglip) readAll(from Source, side int) error {
	v := t.Vision
	shapes := map[string][]int{
		patches + ".weight": {v.Hidden, v.Channels, v.Patch, v.Patch}, patches + ".bias": {v.Hidden},
		table: {side * side, v.Hidden}, lastNorm + ".weight": {v.Hidden}, lastNorm + ".bias": {v.Hidden},
		projector: {t.Text.Hidden, v.Hidden * t.Scale * t.Scale},
	}
	for i := range v.Layers {
		for name, out := range map[string][2]int{"self_attn.q_proj": {v.Hidden, v.Hidden},
			"self_attn.k_proj": {v.Hidden, v.Hidden}, "self_attn.v_proj": {v.Hidden, v.Hidden},
			"self_attn.out_proj": {v.Hidden, v.Hidden}, "mlp.fc1": {v.Inner, v.Hidden},
			"mlp.fc2": {v.Hidden, v.Inner}} {
			shapes[siglipLayer(i)+name+".weight"], shapes[siglipLayer(i)+name+".bias"] = out[:], out[:1]
		}
		for _, name := range []string{"layer_norm1", "layer_norm2"} {
			at := siglipLayer(i) + name
			shapes[at+".weight"], shapes[at+".bias"] = []int{v.Hidden}, []int{v.Hidden}
		}
	}
	return t.read(from, shapes)
}

// Width returns the numbers of an embedding.
func (t *siglip) Width() int { return t.Text.Hidden }

// Embed returns the embeddings of an image's tokens [tiles * tokens, Width], in the order of its tiles.
func (t *siglip) Embed(ctx context.Context, tiles []*vision.RGB) ([]float32, error) {
	var all []float32
	for _, tile := range tiles {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if tile.Width != t.processor.Tile || tile.Height != t.processor.Tile {
			return nil, fmt.Errorf("a tile has %d x %d pixels, want %d", tile.Width, tile.Height, t.processor.Tile)
		}
		all = append(all, t.tile(tile)...)
	}
	return all, nil
}

// tile returns the embeddings of one tile.
func (t *siglip) tile(m *vision.RGB) []float32 {
	v := t.Vision
	n := len(t.order)
	x := t.linear(patches, t.pixels(m), n, v.Channels*v.Patch*v.Patch, v.Hidden)
	for i, p := range t.positions {
		add(x[i*v.Hidden:][:v.Hidden], t.tensors[table][int(p)*v.Hidden:])
	}
	for i := range v.Layers {
		at := siglipLayer(i)
		h := t.norm(at+"layer_norm1", x, v.Hidden, v.Eps)
		heads := t.attention(t.linear(at+"self_attn.q_proj", h, n, v.Hidden, v.Hidden),
			t.linear(at+"self_attn.k_proj", h, n, v.Hidden, v.Hidden),
			t.linear(at+"self_attn.v_proj", h, n, v.Hidden, v.Hidden), n, v.Hidden, v.Hidden, v.Heads)
		add(x, t.linear(at+"self_attn.out_proj", heads, n, v.Hidden, v.Hidden))
		h = t.linear(at+"mlp.fc1", t.norm(at+"layer_norm2", x, v.Hidden, v.Eps), n, v.Hidden, v.Inner)
		t.rows(n, func(i int) { gelu(h[i*v.Inner:][:v.Inner]) })
		add(x, t.linear(at+"mlp.fc2", h, n, v.Inner, v.Hidden))
	}
	// the patches of a token follow one another, so that the rows of the projector's input are n / scale² rows of x
	group := t.Scale * t.Scale
	out := make([]float32, n/group*t.Text.Hidden)
	normed := t.norm(lastNorm, x, v.Hidden, v.Eps)
	gemm.Gemm(t.pool, false, true, n/group, t.Text.Hidden, group*v.Hidden, 1, normed, group*v.Hidden,
		t.tensors[projector], group*v.Hidden, 0, out, t.Text.Hidden)
	return out
}

// pixels returns the normalised values of each patch [patches, 3 * patch * patch], channel by channel.
func (t *siglip) pixels(m *vision.RGB) []float32 {
	p, out := t.Vision.Patch, make([]float32, 0, len(m.Pix))
	levels := [3][256]float32{t.processor.Levels(0), t.processor.Levels(1), t.processor.Levels(2)}
	for _, patch := range t.order {
		top, left := int(patch)/t.grid*p, int(patch)%t.grid*p
		for c := range levels {
			for y := top; y < top+p; y++ {
				for x := left; x < left+p; x++ {
					out = append(out, levels[c][m.Pix[3*(y*m.Width+x)+c]])
				}
			}
		}
	}
	return out
}
