package session

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/model/weights"
)

// head is the network's name of the vocabulary head. A tied model may have it stored beside its embeddings.
const head = "lm_head.weight"

// embeddings returns the network's name of the embeddings, in whichever scope the language model is.
func (b *Base) embeddings() string { return b.Config.Scope() + ".embed_tokens.weight" }

// checkVocabulary compares vocab_size with the rows of the embedding. Its error says more than two shapes would.
func (b *Base) checkVocabulary() error {
	t, ok := b.Weights.Tensor(b.embeddings())
	if !ok || len(t.Shape) != 2 || t.Shape[0] == b.Config.VocabSize {
		return nil
	}
	return fmt.Errorf("config.json says vocab_size = %d, %s has %d rows: they are of different checkpoints, or the vocabulary was resized and only one of them saved",
		b.Config.VocabSize, t.Name, t.Shape[0])
}

// CheckTied refuses a checkpoint that stores different embeddings and head although config.json says that they are
// tied, because it is not known which of the two is meant. In that case transformers 4.57 uses the embeddings as the
// head, transformers 5.17 the head.
func (b *Base) CheckTied(ctx context.Context) error {
	if !b.Config.TieEmbeddings {
		return nil
	}
	e, ok := b.Weights.Tensor(b.embeddings())
	h, both := b.Weights.Tensor(head)
	if !ok || !both {
		return nil
	}
	equal := slices.Equal(e.Shape, h.Shape)
	if equal {
		var err error
		if equal, err = sameNumbers(ctx, e, h); err != nil {
			return err
		}
	}
	if !equal {
		return fmt.Errorf("base model %q: tie_word_embeddings is true in config.json, and %s is stored beside %s with other values: set tie_word_embeddings to false if the head has weights of its own, else delete %s from the checkpoint",
			b.Name, h.Name, e.Name, h.Name)
	}
	return nil
}

// sameNumbers reports whether two tensors of one shape hold the same numbers.
func sameNumbers(ctx context.Context, a, b weights.Tensor) (bool, error) {
	const piece = 1 << 20
	if a.DType == b.DType {
		for from := 0; from < len(a.Data); from += piece {
			to := min(from+piece, len(a.Data))
			if !bytes.Equal(a.Data[from:to], b.Data[from:to]) {
				return false, ctx.Err()
			}
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
		}
		return true, nil
	}
	n := a.Len()
	x, y := make([]float32, min(piece, n)), make([]float32, min(piece, n))
	for from := 0; from < n; from += piece {
		to := min(from+piece, n)
		if err := weights.Float32Range(a, from, to, x[:to-from]); err != nil {
			return false, err
		}
		if err := weights.Float32Range(b, from, to, y[:to-from]); err != nil {
			return false, err
		}
		if !slices.Equal(x[:to-from], y[:to-from]) || ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
	return true, nil
}
