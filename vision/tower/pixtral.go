package tower

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/vision"
)

// pixtralConfig is what config.json of Mistral 3 says of the images.
type pixtralConfig struct {
	Layer json.RawMessage `json:"vision_feature_layer"`
	Merge int             `json:"spatial_merge_size"`
	Bias  bool            `json:"multimodal_projector_bias"`
	Act   string          `json:"projector_hidden_act"`
	Text  struct {
		Hidden int     `json:"hidden_size"`
		Eps    float64 `json:"rms_norm_eps"`
	} `json:"text_config"`
	Vision struct {
		Type     string  `json:"model_type"`
		Hidden   int     `json:"hidden_size"`
		Inner    int     `json:"intermediate_size"`
		Layers   int     `json:"num_hidden_layers"`
		Heads    int     `json:"num_attention_heads"`
		Channels int     `json:"num_channels"`
		Patch    int     `json:"patch_size"`
		Act      string  `json:"hidden_act"`
		Theta    float64 `json:"rope_theta"` // its place before transformers 5
		Rope     struct {
			Theta float64 `json:"rope_theta"`
			Type  string  `json:"rope_type"`
		} `json:"rope_parameters"`
	} `json:"vision_config"`
}

// activations are those that Pixtral's MLPs have, in place.
var activations = map[string]func(x []float32){"gelu": geluErf, "silu": silu}

// parsePixtral reads config.json; absent keys have transformers' defaults.
func parsePixtral(file []byte) (c pixtralConfig, err error) {
	v := &c.Vision
	v.Type, v.Hidden, v.Inner, v.Layers, v.Heads, v.Channels, v.Patch, v.Act =
		"pixtral", 1024, 4096, 24, 16, 3, 16, "gelu"
	v.Theta = 10000
	c.Merge, c.Act, c.Text.Hidden, c.Text.Eps = 2, "gelu", 4096, 1e-6
	if err := json.Unmarshal(file, &c); err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	if v.Rope.Theta != 0 {
		v.Theta = v.Rope.Theta
	}
	if err := checkSizes(size{"text_config.hidden_size", c.Text.Hidden}, size{"spatial_merge_size", c.Merge},
		size{"vision_config.hidden_size", v.Hidden}, size{"vision_config.intermediate_size", v.Inner},
		size{"vision_config.num_hidden_layers", v.Layers}, size{"vision_config.num_attention_heads", v.Heads},
		size{"vision_config.patch_size", v.Patch}); err != nil {
		return c, err
	}
	switch {
	case v.Type != "pixtral":
		return c, fmt.Errorf("config.json: vision_config.model_type = %q: supported is pixtral", v.Type)
	case c.Layer != nil && string(c.Layer) != "-1":
		return c, fmt.Errorf("config.json: vision_feature_layer = %s: supported is -1, the last layer", c.Layer)
	case v.Channels != 3:
		return c, fmt.Errorf("config.json: vision_config.num_channels = %d: supported is 3", v.Channels)
	case activations[v.Act] == nil || c.Act != "gelu":
		return c, fmt.Errorf(
			"config.json: vision_config.hidden_act = %q, projector_hidden_act = %q: supported are gelu "+
				"and silu, and gelu", v.Act, c.Act)
	case v.Hidden%(4*v.Heads) != 0:
		return c, fmt.Errorf("config.json: vision_config.hidden_size = %d is no multiple of four times "+
			"num_attention_heads = %d", v.Hidden, v.Heads)
	case v.Rope.Type != "" && v.Rope.Type != "axial" && v.Rope.Type != "default" || !(v.Theta > 1 && v.Theta < 1e30):
		return c, fmt.Errorf("config.json: vision_config: rope_type = %q, rope_theta = %g: supported is axial, above 1",
			v.Rope.Type, v.Theta)
	}
	return c, nil
}

// describePixtral checks a config.json.
func describePixtral(file []byte, d *Description) error {
	if d.Token < 0 {
		d.Token = 10
	}
	_, err := parsePixtral(file)
	return err
}

// pixtral is the image part of Mistral 3: patches of an image of any size, pre-norm layers with gated MLPs whose
// attention sees the whole image and turns by rows and columns, and a projector that merges the patches of a token.
type pixtral struct {
	pixtralConfig
	arithmetic
	processor        *vision.Lined
	tower, projector string // scopes of the tensors
}

// openPixtral reads the image part of Mistral 3.
func openPixtral(file []byte, from Source, p *vision.Lined) (*pixtral, error) {
	c, err := parsePixtral(file)
	if err != nil {
		return nil, err
	}
	if p.Patch != c.Vision.Patch || p.Merge != c.Merge {
		return nil, fmt.Errorf(
			"the processor has patch_size and spatial_merge_size %d, %d, config.json %d, %d", p.Patch,
			p.Merge, c.Vision.Patch, c.Merge)
	}
	t := &pixtral{pixtralConfig: c, arithmetic: newArithmetic(), processor: p,
		tower:     scopeOf(from, "patch_conv.weight", "model.vision_tower.", "vision_tower."),
		projector: scopeOf(from, "norm.weight", "model.multi_modal_projector.", "multi_modal_projector.")}
	return t, t.readAll(from)
}

func (t *pixtral) layer(i int) string { return fmt.Sprintf("%stransformer.layers.%d.", t.tower, i) }

// readAll reads all tensors as float32.
func (t *pixtral) readAll(from Source) error {
	v, out, merged := t.Vision, t.Text.Hidden, t.Merge*t.Merge*t.Vision.Hidden
	merging := t.projector + "patch_merger.merging_layer.weight"
	shapes := map[string][]int{t.tower + "patch_conv.weight": {v.Hidden, v.Channels, v.Patch, v.Patch},
		t.tower + "ln_pre.weight": {v.Hidden}, t.projector + "norm.weight": {v.Hidden}, merging: {v.Hidden, merged},
		t.projector + "linear_1.weight": {out, v.Hidden}, t.projector + "linear_2.weight": {out, out}}
	if t.Bias {
		shapes[t.projector+"linear_1.bias"], shapes[t.projector+"linear_2.bias"] = []int{out}, []int{out}
	}
	for i := range v.Layers {
		at := t.layer(i)
		for _, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
			shapes[at+"attention."+name+".weight"] = []int{v.Hidden, v.Hidden}
		}
		shapes[at+"attention_norm.weight"], shapes[at+"ffn_norm.weight"] = []int{v.Hidden}, []int{v.Hidden}
		shapes[at+"feed_forward.gate_proj.weight"] = []int{v.Inner, v.Hidden}
		shapes[at+"feed_forward.up_proj.weight"] = []int{v.Inner, v.Hidden}
		shapes[at+"feed_forward.down_proj.weight"] = []int{v.Hidden, v.Inner}
	}
	if err := t.read(from, shapes); err != nil {
		return err
	}
	t.tensors[merging] = byPatches(t.tensors[merging], v.Hidden, t.Merge*t.Merge)
	return nil
}

// byPatches returns rows of channels x patches as rows of patches x channels:
// the patches of a token follow one another.
func byPatches(rows []float32, channels, patches int) []float32 {
	out := make([]float32, len(rows))
	for at := 0; at < len(rows); at += channels * patches {
		for c := range channels {
			for p := range patches {
				out[at+p*channels+c] = rows[at+c*patches+p]
			}
		}
	}
	return out
}

// Width returns the numbers of an embedding.
func (t *pixtral) Width() int { return t.Text.Hidden }

// pixtralEps is what the tower's norms add to the mean square.
const pixtralEps = 1e-5

// Embed returns the embeddings of an image, which is one tile.
func (t *pixtral) Embed(ctx context.Context, tiles []*vision.RGB) ([]float32, error) {
	v, side := t.Vision, t.Vision.Patch*t.Merge
	if len(tiles) != 1 || tiles[0].Width%side != 0 || tiles[0].Height%side != 0 {
		return nil, fmt.Errorf("an image must be one tile whose sides are multiples of %d pixels", side)
	}
	m := tiles[0]
	order := patchesOf(m.Height/v.Patch, m.Width/v.Patch, t.Merge)
	n := len(order)
	x := t.linear(t.tower+"patch_conv", pixelsOf(m, order, v.Patch, 1, levelsOf(t.processor)), n,
		v.Channels*v.Patch*v.Patch, v.Hidden)
	x = t.rmsNorm(x, t.tensors[t.tower+"ln_pre.weight"], pixtralEps, 0)
	angles := anglesOf(order, t.frequencies())
	for i := range v.Layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t.apply(t.layer(i), x, n, angles)
	}
	group := t.Merge * t.Merge
	x = t.rmsNorm(x, t.tensors[t.projector+"norm.weight"], t.Text.Eps, 0)
	x = t.linear(t.projector+"patch_merger.merging_layer", x, n/group, group*v.Hidden, v.Hidden)
	x = t.linear(t.projector+"linear_1", x, n/group, v.Hidden, t.Text.Hidden)
	t.rows(n/group, func(i int) { geluErf(x[i*t.Text.Hidden:][:t.Text.Hidden]) })
	return t.linear(t.projector+"linear_2", x, n/group, t.Text.Hidden, t.Text.Hidden), nil
}

// frequencies returns those of the rotation by a patch's row, each second, and by its column, the others.
func (t *pixtral) frequencies() (both [2][]float32) {
	size := t.Vision.Hidden / t.Vision.Heads
	for j := range size / 2 {
		f := float32(1 / math.Pow(t.Vision.Theta, float64(float32(2*j)/float32(size))))
		both[j%2] = append(both[j%2], f)
	}
	return both
}

// apply applies a layer to n patches in place.
func (t *pixtral) apply(at string, x []float32, n int, angles [2][]float32) {
	v := t.Vision
	h := t.rmsNorm(x, t.tensors[at+"attention_norm.weight"], pixtralEps, 0)
	q, k := t.linear(at+"attention.q_proj", h, n, v.Hidden, v.Hidden), t.linear(at+"attention.k_proj", h, n, v.Hidden,
		v.Hidden)
	half := v.Hidden / v.Heads / 2
	t.rows(n, func(i int) {
		for _, row := range [][]float32{q, k} {
			turn(row[i*v.Hidden:][:v.Hidden], v.Heads, angles[0][i*half:][:half], angles[1][i*half:][:half])
		}
	})
	heads := t.attention(q, k,
		t.linear(at+"attention.v_proj", h, n, v.Hidden, v.Hidden), n, v.Hidden, v.Hidden, v.Heads)
	add(x, t.linear(at+"attention.o_proj", heads, n, v.Hidden, v.Hidden))
	h = t.rmsNorm(x, t.tensors[at+"ffn_norm.weight"], pixtralEps, 0)
	gate, up := t.linear(at+"feed_forward.gate_proj", h, n, v.Hidden, v.Inner),
		t.linear(at+"feed_forward.up_proj", h, n,
			v.Hidden, v.Inner)
	t.rows(n, func(i int) {
		row := gate[i*v.Inner:][:v.Inner]
		activations[v.Act](row)
		for j, u := range up[i*v.Inner:][:v.Inner] {
			row[j] *= u
		}
	})
	add(x, t.linear(at+"feed_forward.down_proj", gate, n, v.Inner, v.Hidden))
}
