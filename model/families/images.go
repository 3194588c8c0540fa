package families

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
)

// withImages gives a tensor of a folder with images the name that it has in the network: the published folders have the
// names of the parts in another order.
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

// ReadsTensor tells whether the network of c reads a checkpoint's tensor, and does not leave it out as one that belongs
// to images.
func ReadsTensor(c model.Config, tensor string) bool {
	if f := Table[c.ModelType]; f.Names != nil {
		tensor = f.Names(tensor)
	}
	return !slices.ContainsFunc(Unused(c), func(pattern string) bool {
		return strings.HasPrefix(tensor, strings.TrimSuffix(pattern, "*"))
	})
}

// Unused are the patterns of tensors that the network of c leaves out: those of its family, and the keys and values of
// layers that attend to those of others, which releases of Gemma 4 have and transformers does not read.
func Unused(c model.Config) []string {
	unused := slices.Clone(Table[c.ModelType].Unused)
	for i := c.NumLayers - c.Gemma4.SharedKV; i < c.NumLayers; i++ {
		for _, name := range []string{"k_proj.weight", "v_proj.weight", "k_norm.weight"} {
			unused = append(unused, fmt.Sprintf("%s.layers.%d.self_attn.%s", c.Scope(), i, name))
		}
	}
	return unused
}

// Tie is c with what only the tensors of a folder tell: whether experts are linear layers and, of a folder with images,
// whether the head is the embeddings, where text_config does not say so and what is around it does, which transformers
// 5 goes by.
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

// ofImages are the patterns of the tensors that belong to images.
var ofImages = []string{visionTensors + "*", projectorTensors + "*"}
