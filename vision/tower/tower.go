// Package tower computes what the image part of a model makes of an image: the embeddings that take the place of the
// image's tokens. It is frozen, so this is a function of the pixels alone. It runs on the host's processor, in float32.
package tower

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/vision"
)

// Tower is the image part of a model. Its methods are not safe for concurrent use.
type Tower interface {
	// Embed returns the embeddings of an image's tokens [tokens, Width], in the order of its tiles. With
	// Description.Added layers that add embeddings, a row has those of the tokens and then of each layer.
	Embed(ctx context.Context, tiles []*vision.RGB) ([]float32, error)
	// Width returns the numbers of a token's row.
	Width() int
}

// Source gives the tensors of a checkpoint by their names.
type Source interface {
	Tensor(name string) (weights.Tensor, bool)
}

// Description is what config.json says of a model's images to others than the tower.
type Description struct {
	Token int32 // id in whose places embeddings of an image stand
	// Added is the number of first layers of the language model that add embeddings of images to their results
	// (deepstack).
	Added int
	// Sections are the rotary frequencies that the coordinates of a token's position turn: time, row and column
	// (M-RoPE). Zero means that positions have one coordinate.
	Sections [3]int
	// Contiguous says that the frequencies of a coordinate follow one another; false means that they take turns.
	Contiguous bool
	// Spans says that the tokens of an image see one another in both directions, within a layer's window.
	Spans bool
}

// modelTypes are the models whose towers this package computes.
var modelTypes = map[string]struct {
	describe func(file []byte, d *Description) error
	open     func(file []byte, from Source, p vision.Processor) (Tower, error)
}{
	"gemma3":     {describeGemma3, with(openGemma3)},
	"idefics3":   {describeIdefics3, with(openIdefics3)},
	"mistral3":   {describePixtral, with(openPixtral)},
	"smolvlm":    {describeIdefics3, with(openIdefics3)},
	"qwen2_5_vl": {describeQwen25VL, with(openQwen25VL)},
	"qwen3_vl":   {describeQwen3VL, with(openQwen3VL)},
}

// errOtherProcessor is the error of a folder whose processor does not belong to its tower.
var errOtherProcessor = errors.New("image_processor_type is of another kind of model than config.json's model_type")

// with returns a function that opens a tower of one kind of processor and refuses another.
func with[P vision.Processor, T Tower](open func(file []byte, from Source, p P) (T, error)) func([]byte, Source,
	vision.Processor) (Tower, error) {
	return func(file []byte, from Source, p vision.Processor) (Tower, error) {
		own, ok := p.(P)
		if !ok {
			return nil, errOtherProcessor
		}
		return open(file, from, own)
	}
}

// typeOf returns the model_type of a config.json; "" = it has none.
func typeOf(file []byte) string {
	var c struct {
		Type string `json:"model_type"`
	}
	if json.Unmarshal(file, &c) != nil {
		return ""
	}
	return c.Type
}

// Reads reports whether this package has a tower for models of a model_type.
func Reads(modelType string) bool {
	_, ok := modelTypes[modelType]
	return ok
}

// Describe returns what a config.json says of images; nil if this package has no tower for its model.
func Describe(file []byte) (*Description, error) {
	kind, ok := modelTypes[typeOf(file)]
	if !ok {
		return nil, nil
	}
	var c struct {
		ImageToken *int32 `json:"image_token_id"`
		ImageIndex *int32 `json:"image_token_index"` // its name in older files
	}
	d := &Description{Token: -1}
	if err := json.Unmarshal(file, &c); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if given := cmp.Or(c.ImageToken, c.ImageIndex); given != nil {
		d.Token = *given
	}
	if err := kind.describe(file, d); err != nil {
		return nil, err
	}
	if d.Token < 0 {
		return nil, errors.New("config.json: image_token_id is missing")
	}
	return d, nil
}

// Open reads the image part of a model: its config.json and its tensors. p is the model's processor, whose tiles the
// tower gets.
func Open(file []byte, from Source, p vision.Processor) (Tower, error) {
	kind, ok := modelTypes[typeOf(file)]
	if !ok {
		return nil, fmt.Errorf("config.json: model_type = %q has no image tower here", typeOf(file))
	}
	t, err := kind.open(file, from, p)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// mostSizes bounds sizes in a config.json.
const mostSizes = 1 << 16

// size is a size in a config.json, with its key.
type size struct {
	key string
	n   int
}

// checkSizes refuses sizes that are not 1 to mostSizes.
func checkSizes(sizes ...size) error {
	for _, s := range sizes {
		if s.n < 1 || s.n > mostSizes {
			return fmt.Errorf("config.json: %s = %d: must be 1 to %d", s.key, s.n, mostSizes)
		}
	}
	return nil
}
