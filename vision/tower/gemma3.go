package tower

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/vision"
)

// gemma3Config is what config.json of Gemma 3 says of the images.
type gemma3Config struct {
	Tokens int `json:"mm_tokens_per_image"`
	Text   struct {
		Hidden int `json:"hidden_size"`
	} `json:"text_config"`
	Vision siglipVision `json:"vision_config"`
}

// gemma3Token is the id of an image's tokens where config.json has none.
const gemma3Token = 262144

// parseGemma3 reads config.json; absent keys have transformers' defaults.
func parseGemma3(file []byte) (c gemma3Config, err error) {
	c.Tokens, c.Text.Hidden = 256, 2304
	v := &c.Vision
	v.Hidden, v.Inner, v.Layers, v.Heads, v.Channels, v.Image, v.Patch = 768, 3072, 12, 12, 3, 224, 16
	v.Activation, v.Eps = "gelu_pytorch_tanh", 1e-6
	if err := json.Unmarshal(file, &c); err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	if err := checkSizes(size{"mm_tokens_per_image", c.Tokens},
		size{"text_config.hidden_size", c.Text.Hidden}); err != nil {
		return c, err
	}
	if err := c.Vision.check(); err != nil {
		return c, err
	}
	side, tokens := v.Image/v.Patch, int(math.Sqrt(float64(c.Tokens)))
	if tokens*tokens != c.Tokens || side%tokens != 0 || side == 0 {
		return c, fmt.Errorf(
			"config.json: mm_tokens_per_image = %d: an image of %d x %d patches has no such square of "+
				"tokens", c.Tokens, side, side)
	}
	return c, nil
}

// describeGemma3 finds the tokens of images, which see one another.
func describeGemma3(file []byte, d *Description) error {
	if d.Token < 0 {
		d.Token = gemma3Token
	}
	d.Spans = true
	_, err := parseGemma3(file)
	return err
}

// openGemma3 reads the image part of Gemma 3: a SigLIP tower, and a projector that takes the mean of the patches of a
// token, norms it (RMSNorm, whose weight is stored minus one) and multiplies it with one matrix.
func openGemma3(file []byte, from Source, p *vision.Square) (*siglip, error) {
	c, err := parseGemma3(file)
	if err != nil {
		return nil, err
	}
	v := c.Vision
	if p.Side != v.Image || p.Tokens != c.Tokens {
		return nil, fmt.Errorf("the processor makes %d tokens of %d x %d pixels (image_seq_length, size), config.json "+
			"%d of %d x %d (mm_tokens_per_image, vision_config.image_size)", p.Tokens, p.Side, p.Side, c.Tokens,
			v.Image,
			v.Image)
	}
	scope := scopeOf(from, siglipPatches+".weight", "model.vision_tower.", "vision_tower.vision_model.",
		"vision_tower.",
		"model.vision_tower.vision_model.")
	group := v.Image / v.Patch / int(math.Sqrt(float64(c.Tokens)))
	t := newSigLIP(v, scope, p, p.Side, group, func(i int) int32 { return int32(i) })
	at := scopeOf(from, "mm_soft_emb_norm.weight", "model.multi_modal_projector.", "multi_modal_projector.")
	norm, matrix := at+"mm_soft_emb_norm.weight", at+"mm_input_projection_weight"
	t.width = c.Text.Hidden
	t.project = func(x []float32) []float32 {
		pooled := t.rmsNorm(means(x, group*group, v.Hidden), t.tensors[norm], v.Eps, 1)
		out := make([]float32, c.Tokens*t.width)
		gemm.Gemm(t.pool, false, false, c.Tokens, t.width, v.Hidden, 1, pooled, v.Hidden, t.tensors[matrix], t.width, 0,
			out, t.width)
		return out
	}
	return t, t.readAll(from, map[string][]int{norm: {v.Hidden}, matrix: {v.Hidden, t.width}})
}

// scopeOf returns the first of some scopes in which a checkpoint has a tensor; the first of all if it has none.
func scopeOf(from Source, tensor string, scopes ...string) string {
	for _, scope := range scopes {
		if _, ok := from.Tensor(scope + tensor); ok {
			return scope
		}
	}
	return scopes[0]
}

// means returns the mean of each n rows of width numbers.
func means(x []float32, n, width int) []float32 {
	out := make([]float32, len(x)/n)
	for i := range len(out) / width {
		to := out[i*width:][:width]
		for k := range n {
			add(to, x[(i*n+k)*width:])
		}
		for j := range to {
			to[j] /= float32(n)
		}
	}
	return out
}
