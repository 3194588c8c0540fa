package llamacpp

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/export/gguf"
)

// Update is the low-rank update of a linear layer: Scale B A.
type Update struct {
	A, B    []float32 // [Rank,In], [Out,Rank]
	Rank    int
	In, Out int
	Scale   float64
	taken   bool
}

// Adapter plans the file of an adapter of a model: updates by the layers' paths, and the alpha that is written beside
// them. llama.cpp multiplies by alpha over the rank; where a layer's scale is another, its B takes the rest.
func Adapter(m Model, updates map[string]*Update, alpha float64) (*Plan, error) {
	base, err := network(m)
	if err != nil {
		return nil, err
	}
	p := &Plan{Architecture: base.Architecture, c: m.Config, Notes: nil}
	p.KVs = append(p.KVs, gguf.KV{Key: "general.architecture", Value: p.Architecture}, gguf.KV{Key: "general.type",
		Value: "adapter"})
	if m.Name != "" {
		p.add("general.name", m.Name)
	}
	p.add("adapter.type", "lora")
	p.add("adapter.lora.alpha", float32(alpha))
	for _, t := range base.Tensors {
		from := t.Stack
		if from == nil {
			from = []string{t.From}
		}
		if err := p.update(t, from, updates, float32(alpha)); err != nil {
			return nil, err
		}
	}
	var left []string
	for path, u := range updates {
		if !u.taken {
			left = append(left, path)
		}
	}
	if left != nil {
		slices.Sort(left)
		return nil,
			fmt.Errorf(
				"the update of %s has no place in a GGUF adapter: export the merged model (--format gguf --adapter)",
				left[0])
	}
	return p, nil
}

// update adds A and B of a matrix, stacked where experts are.
func (p *Plan) update(t Tensor, from []string, updates map[string]*Update, alpha float32) error {
	own := make([]*Update, len(from))
	count := 0
	for i, name := range from {
		const ending = ".weight"
		if len(name) < len(ending) || name[len(name)-len(ending):] != ending {
			continue
		}
		if own[i] = updates[name[:len(name)-len(ending)]]; own[i] != nil {
			own[i].taken = true
			count++
		}
	}
	if count == 0 {
		return nil
	}
	if count < len(own) {
		return fmt.Errorf("%d of the %d experts of %s have an update, where llama.cpp asks for all: export the "+
			"merged model (--format gguf --adapter)", count, len(own), t.Name)
	}
	first := own[0]
	for _, u := range own {
		if u.Rank != first.Rank {
			return fmt.Errorf("the experts of %s have updates of different ranks: export the merged model (--format "+
				"gguf --adapter)", t.Name)
		}
	}
	shapeA, shapeB := []int{first.In, first.Rank}, []int{first.Rank, first.Out}
	if len(t.Shape) == 3 {
		shapeA, shapeB = append(shapeA, len(own)), append(shapeB, len(own))
	}
	p.Tensors = append(p.Tensors,
		Tensor{Name: t.Name + ".lora_a", Shape: shapeA, Rows: func(row int, dst []float32) error {
			for ; len(dst) > 0; row, dst = row+1, dst[first.In:] {
				a := own[row/first.Rank].A[row%first.Rank*first.In:]
				if t.Columns == nil {
					copy(dst[:first.In], a)
					continue
				}
				for i := range first.In {
					dst[i] = a[t.Columns(i)]
				}
			}
			return nil
		}},
		Tensor{Name: t.Name + ".lora_b", Shape: shapeB, Rows: func(row int, dst []float32) error {
			for ; len(dst) > 0; row, dst = row+1, dst[first.Rank:] {
				u, at := own[row/first.Out], row%first.Out
				if t.Order != nil {
					at = t.Order(at)
				}
				copy(dst[:u.Rank], u.B[at*u.Rank:])
				if rest := float32(u.Scale * float64(u.Rank) / float64(alpha)); rest != 1 {
					for i := range u.Rank {
						dst[i] *= rest
					}
				}
			}
			return nil
		}})
	return nil
}
