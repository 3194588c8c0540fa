package tower

import (
	"encoding/json"
	"fmt"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/vision"
)

// idefics3Config is what config.json of SmolVLM and Idefics 3 says of the images.
type idefics3Config struct {
	Scale int `json:"scale_factor"`
	Text  struct {
		Hidden int `json:"hidden_size"`
	} `json:"text_config"`
	Vision siglipVision `json:"vision_config"`
}

// parseIdefics3 reads config.json; absent keys have transformers' defaults.
func parseIdefics3(file []byte) (c idefics3Config, err error) {
	c.Scale = 2
	v := &c.Vision
	v.Hidden, v.Inner, v.Layers, v.Heads, v.Channels, v.Image, v.Patch = 1152, 3072, 12, 16, 3, 224, 32
	v.Activation, v.Eps = "gelu_pytorch_tanh", 1e-6
	if err := json.Unmarshal(file, &c); err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	if err := checkSizes(size{"scale_factor", c.Scale}, size{"text_config.hidden_size", c.Text.Hidden}); err != nil {
		return c, err
	}
	return c, c.Vision.check()
}

// describeIdefics3 checks a config.json.
func describeIdefics3(file []byte, _ *Description) error {
	_, err := parseIdefics3(file)
	return err
}

// idefics3Projector is the projector's matrix.
const idefics3Projector = "model.connector.modality_projection.proj.weight"

// openIdefics3 reads the image part of SmolVLM or Idefics 3: a SigLIP tower, and a projector that puts neighbouring
// patches side by side (pixel shuffle) and multiplies them with one matrix.
func openIdefics3(file []byte, from Source, p *vision.Tiled) (*siglip, error) {
	c, err := parseIdefics3(file)
	if err != nil {
		return nil, err
	}
	v, grid := c.Vision, p.Tile/c.Vision.Patch
	if grid == 0 || grid%c.Scale != 0 || grid*grid/(c.Scale*c.Scale) != p.Tokens {
		return nil, fmt.Errorf("a tile of %d pixels has %d x %d patches of %d, which scale_factor %d makes no %d "+
			"tokens of (image_seq_len)", p.Tile, grid, grid, v.Patch, c.Scale, p.Tokens)
	}
	t := newSigLIP(v, "model.vision_model.", p, p.Tile, c.Scale,
		func(i int) int32 { return bucket(i, grid, v.Image/v.Patch) })
	in := v.Hidden * c.Scale * c.Scale
	t.width = c.Text.Hidden
	t.project = func(x []float32) []float32 {
		// the patches of a token follow one another, so that they are a row
		n := len(x) / in
		out := make([]float32, n*t.width)
		gemm.Gemm(t.pool, false, true, n, t.width, in, 1, x, in, t.tensors[idefics3Projector], in, 0, out, t.width)
		return out
	}
	return t, t.readAll(from, map[string][]int{idefics3Projector: {t.width, in}})
}

// bucket returns the row of a table for side rows in which row i of a grid lies: torch.bucketize with right=True over
// arange(1/side, 1, 1/side).
func bucket(i, grid, side int) (in int32) {
	at := min(float32(i)*(1/float32(grid)), float32(1-1e-6))
	for b := 1; b < side; b++ {
		if float32(float64(b)/float64(side)) <= at {
			in = int32(b)
		}
	}
	return in
}
