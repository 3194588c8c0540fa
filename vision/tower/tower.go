// Package tower computes what the image part of a model makes of an image: the embeddings that take the place of the
// image's tokens. It is frozen, so this is a function of the pixels alone. It runs on the host's processor, in float32.
//
// SmolVLM and Idefics 3 have a SigLIP tower (Zhai et al. 2023): patches of a tile, a table of positions, and pre-norm
// layers whose attention sees all patches. Their projector puts neighbouring patches side by side (pixel shuffle) and
// multiplies them with one matrix.
package tower

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/vision"
)

// config is what config.json says of the images.
type config struct {
	ImageToken *int32 `json:"image_token_id"`
	Scale      int    `json:"scale_factor"`
	Text       struct {
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

// Describes reports whether a config.json is one of a model whose tower this package computes.
func Describes(file []byte) bool {
	var c struct {
		Type string `json:"model_type"`
	}
	return json.Unmarshal(file, &c) == nil && (c.Type == "idefics3" || c.Type == "smolvlm")
}

// Tower is the image part of a model. Its methods are not safe for concurrent use.
type Tower struct {
	config
	pool      *gemm.Pool
	processor *vision.Processor
	grid      int     // patches of a side of a tile
	positions []int32 // [grid²] rows of the table of positions, in the order of order
	order     []int32 // [grid²] patches, row by row, the patches of a token lying together
	tensors   map[string][]float32
}

// Source gives the tensors of a checkpoint by their names.
type Source interface {
	Tensor(name string) (weights.Tensor, bool)
}

// parse reads config.json; absent keys have transformers' defaults.
func parse(file []byte) (c config, err error) {
	c.Scale = 2
	v := &c.Vision
	v.Hidden, v.Inner, v.Layers, v.Heads, v.Channels, v.Image, v.Patch = 1152, 3072, 12, 16, 3, 224, 32
	v.Activation, v.Eps = "gelu_pytorch_tanh", 1e-6
	if err := json.Unmarshal(file, &c); err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	const most = 1 << 16
	for key, n := range map[string]int{"scale_factor": c.Scale, "text_config.hidden_size": c.Text.Hidden,
		"vision_config.hidden_size": v.Hidden, "vision_config.intermediate_size": v.Inner,
		"vision_config.num_hidden_layers": v.Layers, "vision_config.num_attention_heads": v.Heads,
		"vision_config.image_size": v.Image, "vision_config.patch_size": v.Patch} {
		if n < 1 || n > most {
			return c, fmt.Errorf("config.json: %s = %d: must be 1 to %d", key, n, most)
		}
	}
	switch {
	case c.ImageToken == nil:
		return c, fmt.Errorf("config.json: image_token_id is missing")
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

// ImageToken returns the id of the token that a config.json has images stand in place of.
func ImageToken(file []byte) (int32, error) {
	c, err := parse(file)
	if err != nil {
		return 0, err
	}
	return *c.ImageToken, nil
}

// Open reads the image part of a model: its config.json and its tensors. p is the model's processor, whose tiles the
// tower gets.
func Open(file []byte, from Source, p *vision.Processor) (*Tower, error) {
	c, err := parse(file)
	if err != nil {
		return nil, err
	}
	t := &Tower{config: c, pool: gemm.Shared(), processor: p, grid: p.Tile / c.Vision.Patch,
		tensors: map[string][]float32{}}
	side := c.Vision.Image / c.Vision.Patch
	if t.grid == 0 || t.grid%c.Scale != 0 || t.grid*t.grid/(c.Scale*c.Scale) != p.Tokens {
		return nil, fmt.Errorf("a tile of %d pixels has %d x %d patches of %d, which scale_factor %d makes no %d "+
			"tokens of (image_seq_len)", p.Tile, t.grid, t.grid, c.Vision.Patch, c.Scale, p.Tokens)
	}
	t.lay(side)
	return t, t.read(from, side)
}

// lay numbers the patches so that those that the projector puts side by side follow one another, and finds their
// positions in a table for side x side patches.
func (t *Tower) lay(side int) {
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
	tensors   = "model.vision_model."
	projector = "model.connector.modality_projection.proj.weight"
	patches   = tensors + "embeddings.patch_embedding"
	table     = tensors + "embeddings.position_embedding.weight"
	lastNorm  = tensors + "post_layernorm"
)

func layer(i int) string { return fmt.Sprintf("%sencoder.layers.%d.", tensors, i) }

// read reads all tensors as float32.
func (t *Tower) read(from Source, side int) error {
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
			shapes[layer(i)+name+".weight"], shapes[layer(i)+name+".bias"] = out[:], out[:1]
		}
		for _, name := range []string{"layer_norm1", "layer_norm2"} {
			shapes[layer(i)+name+".weight"], shapes[layer(i)+name+".bias"] = []int{v.Hidden}, []int{v.Hidden}
		}
	}
	for name, shape := range shapes {
		tensor, ok := from.Tensor(name)
		if !ok {
			return fmt.Errorf("the checkpoint has no tensor %s", name)
		}
		if fmt.Sprint(tensor.Shape) != fmt.Sprint(shape) {
			return fmt.Errorf("tensor %s has the shape %v, config.json says %v", name, tensor.Shape, shape)
		}
		t.tensors[name] = make([]float32, tensor.Len())
		if err := weights.Float32s(tensor, t.tensors[name]); err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
	}
	return nil
}

// Width returns the numbers of an embedding.
func (t *Tower) Width() int { return t.Text.Hidden }

// Embed returns the embeddings of an image's tokens [tiles * tokens, Width], in the order of its tiles.
func (t *Tower) Embed(ctx context.Context, tiles []*vision.RGB) ([]float32, error) {
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
func (t *Tower) tile(m *vision.RGB) []float32 {
	v := t.Vision
	n := len(t.order)
	x := t.linear(patches, t.pixels(m), n, v.Channels*v.Patch*v.Patch, v.Hidden)
	for i, p := range t.positions {
		add(x[i*v.Hidden:][:v.Hidden], t.tensors[table][int(p)*v.Hidden:])
	}
	for i := range v.Layers {
		at := layer(i)
		h := t.norm(at+"layer_norm1", x)
		heads := t.attention(t.linear(at+"self_attn.q_proj", h, n, v.Hidden, v.Hidden),
			t.linear(at+"self_attn.k_proj", h, n, v.Hidden, v.Hidden),
			t.linear(at+"self_attn.v_proj", h, n, v.Hidden, v.Hidden))
		add(x, t.linear(at+"self_attn.out_proj", heads, n, v.Hidden, v.Hidden))
		h = t.linear(at+"mlp.fc1", t.norm(at+"layer_norm2", x), n, v.Hidden, v.Inner)
		t.rows(n, func(i int) { gelu(h[i*v.Inner:][:v.Inner]) })
		add(x, t.linear(at+"mlp.fc2", h, n, v.Inner, v.Hidden))
	}
	// the patches of a token follow one another, so that the rows of the projector's input are n / scale² rows of x
	group := t.Scale * t.Scale
	out := make([]float32, n/group*t.Text.Hidden)
	gemm.Gemm(t.pool, false, true, n/group, t.Text.Hidden, group*v.Hidden, 1, t.norm(lastNorm, x), group*v.Hidden,
		t.tensors[projector], group*v.Hidden, 0, out, t.Text.Hidden)
	return out
}

// pixels returns the normalised values of each patch [patches, 3 * patch * patch], channel by channel.
func (t *Tower) pixels(m *vision.RGB) []float32 {
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

// rows calls f for the numbers below n, in parallel.
func (t *Tower) rows(n int, f func(i int)) {
	t.pool.Parallel(n, f)
}

// linear returns x [n, in] times the transposed weight, plus the bias.
func (t *Tower) linear(name string, x []float32, n, in, out int) []float32 {
	y, bias := make([]float32, n*out), t.tensors[name+".bias"]
	for i := range n {
		copy(y[i*out:], bias)
	}
	gemm.Gemm(t.pool, false, true, n, out, in, 1, x, in, t.tensors[name+".weight"], in, 1, y, out)
	return y
}

// attention returns softmax(q kᵀ / sqrt(D)) v of every head: each patch sees all.
func (t *Tower) attention(q, k, v []float32) []float32 {
	width, heads, n := t.Vision.Hidden, t.Vision.Heads, len(t.order)
	size := width / heads
	out, scores := make([]float32, n*width), make([]float32, n*n)
	scale := float32(1 / math.Sqrt(float64(size)))
	for h := range heads {
		at := h * size
		gemm.Gemm(t.pool, false, true, n, n, size, scale, q[at:], width, k[at:], width, 0, scores, n)
		t.rows(n, func(i int) { softmax(scores[i*n:][:n]) })
		gemm.Gemm(t.pool, false, false, n, size, n, 1, scores, n, v[at:], width, 0, out[at:], width)
	}
	return out
}

// norm returns the layer norm of every row: (x - mean) / sqrt(variance + eps), times a weight, plus a bias.
func (t *Tower) norm(name string, x []float32) []float32 {
	width := t.Vision.Hidden
	y, w, b := make([]float32, len(x)), t.tensors[name+".weight"], t.tensors[name+".bias"]
	t.rows(len(x)/width, func(i int) {
		row, to := x[i*width:][:width], y[i*width:]
		var sum, squares float64
		for _, v := range row {
			sum += float64(v)
		}
		mean := sum / float64(width)
		for _, v := range row {
			squares += (float64(v) - mean) * (float64(v) - mean)
		}
		by := 1 / math.Sqrt(squares/float64(width)+t.Vision.Eps)
		for j, v := range row {
			to[j] = float32((float64(v)-mean)*by)*w[j] + b[j]
		}
	})
	return y
}

func add(to, from []float32) {
	for i := range to {
		to[i] += from[i]
	}
}

// gelu is GELU by its approximation with tanh, in place.
func gelu(x []float32) {
	for i, v := range x {
		f := float64(v)
		x[i] = float32(0.5 * f * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(f+0.044715*f*f*f))))
	}
}

// softmax turns scores into probabilities in place.
func softmax(x []float32) {
	top, sum := float32(math.Inf(-1)), 0.0
	for _, v := range x {
		top = max(top, v)
	}
	for i, v := range x {
		e := math.Exp(float64(v - top))
		x[i] = float32(e)
		sum += e
	}
	for i := range x {
		x[i] *= float32(1 / sum)
	}
}
