package families

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
)

// withImages returns the network's name of a tensor in a folder with images: published folders order the parts of the
// name differently.
func withImages(tensor string) string {
	for _, r := range [][2]string{
		{"language_model.model.", "model.language_model."}, {"language_model.lm_head.", "lm_head."},
		{"vision_tower.", visionTensors}, {"multi_modal_projector.", projectorTensors},
	} {
		if rest, ok := strings.CutPrefix(tensor, r[0]); ok {
			return r[1] + rest
		}
	}
	return tensor
}

// ReadsTensor reports whether c's network reads a checkpoint's tensor rather than skipping it as part of the image
// model.
func ReadsTensor(c model.Config, tensor string) bool {
	if f := Table[c.ModelType]; f.Names != nil {
		tensor = f.Names(tensor)
	}
	return !slices.ContainsFunc(Unused(c), func(pattern string) bool {
		return strings.HasPrefix(tensor, strings.TrimSuffix(pattern, "*"))
	})
}

// Unused returns patterns of tensors that c's network does not use: those of its family, the layer for multi-token
// prediction, and keys and values of layers that share another layer's. Releases of Gemma 4 contain the latter and
// transformers does not read them.
func Unused(c model.Config) []string {
	family := Table[c.ModelType]
	unused := slices.Clone(family.Unused)
	if family.NextTokens {
		unused = append(unused, fmt.Sprintf("%s.layers.%d.*", c.Scope(), c.NumLayers))
	}
	for i := c.NumLayers - c.Gemma4.SharedKV; i < c.NumLayers; i++ {
		for _, name := range []string{"k_proj.weight", "v_proj.weight", "k_norm.weight"} {
			unused = append(unused, fmt.Sprintf("%s.layers.%d.self_attn.%s", c.Scope(), i, name))
		}
	}
	return unused
}

// Tie completes c by what only a folder's tensors show: whether experts are linear layers and, for a folder with images
// whose text_config does not say it, whether the head shares the embeddings. Transformers 5 then follows the outer
// configuration.
func Tie(c model.Config, w *weights.Set) model.Config {
	hasHead := func(tensor string) bool { return withImages(tensor) == "lm_head.weight" }
	if part := Table[c.ModelType].ExpertLayers; part != "" {
		c.ExpertLayers = slices.ContainsFunc(w.Names(), func(name string) bool { return strings.Contains(name, part) })
	}
	if c.TieWithoutHead || c.HeadIfThere {
		c.TieEmbeddings = !slices.ContainsFunc(w.Names(), hasHead)
	}
	return c
}

const visionTensors, projectorTensors = "model.vision_tower.", "model.multi_modal_projector."

// ofImages are patterns of the tensors of the image model.
var ofImages = []string{visionTensors + "*", projectorTensors + "*"}
