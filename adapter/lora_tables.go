package adapter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// Suffixes of the tensors of LoRA beside a table of embeddings [V,C]: A [R,V] and B [C,R].
const (
	suffixEmbeddingA = ".lora_embedding_A"
	suffixEmbeddingB = ".lora_embedding_B"
)

// AdaptsTable reports whether target_modules name the embeddings or the vocabulary head of a path. all-linear and
// regular expressions leave both as they are.
func AdaptsTable(c Config, path string) bool {
	_, expression := c.TargetModules.expression()
	return !expression && slices.ContainsFunc(c.TargetModules, ofVocabulary) && c.Adapts(path)
}

// adaptsTables reports whether target_modules name the embeddings or the vocabulary head.
func adaptsTables(c Config) bool {
	_, expression := c.TargetModules.expression()
	return !expression && slices.ContainsFunc(c.TargetModules, ofVocabulary)
}

// checkTables returns what does not go with LoRA on embeddings or on the vocabulary head.
func (s LoRASettings) checkTables(c Config) (problems []error) {
	if !adaptsTables(c) {
		return nil
	}
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf("lora."+format, args...)) }
	if start, _, err := startOf(s.InitLoRAWeights); err == nil && start.from != "" {
		bad("init_lora_weights: %s starts from the %s of a linear layer, and lora.target_modules %v name embeddings or "+
			"the vocabulary head: leave one of the two out", s.InitLoRAWeights, start.from, []string(c.TargetModules))
	}
	if c.Dropout != 0 && slices.ContainsFunc(c.TargetModules, isHead) {
		bad("dropout: %v does not go with lm_head in lora.target_modules: its update is part of the matrix that the loss "+
			"takes, whose input can't be dropped apart; write 0", c.Dropout)
	}
	if s.LoRAPlusLRRatio > 0 {
		bad("loraplus_lr_ratio: LoRA+ gives embeddings a rate of their own, which is not supported: leave embeddings and "+
			"head out of lora.target_modules %v, or the key", []string(c.TargetModules))
	}
	if s.LoRABias {
		bad("lora_bias: it does not go with embeddings or the vocabulary head in lora.target_modules %v, as in PEFT: leave "+
			"one of the two out", []string(c.TargetModules))
	}
	if TokenRowsOf(c).Any() {
		bad("trainable_token_indices: it does not go with embeddings or the vocabulary head in lora.target_modules %v: "+
			"leave one of the two out", []string(c.TargetModules))
	}
	return problems
}

// isHead reports whether a target is the vocabulary head.
func isHead(target string) bool { return strings.HasSuffix(target, headModule) }

// embeddingLoRA declares the update of a table of embeddings: y = E[ids] + s A[:,ids]ᵀ Bᵀ. A lies in memory as [V,R],
// so that a token's column is a row.
func (w *tables) embeddingLoRA(n *nn.Net, path string, vocab, width int) nn.EmbeddingLayer {
	r, scale := w.c.Rank(path), w.c.Scale(path)
	own := []member{{Param: Param{Name: path + suffixEmbeddingA, Shape: []int{r, vocab}}, experts: vocab, rows: r}}
	a := w.t.stack(n, path+suffixEmbeddingA, own, vocab, r)
	b := w.t.param(n, path+suffixEmbeddingB, width, r)
	w.t.Layers = append(w.t.Layers, path)
	return func(ids, y *nn.Value, by float64) *nn.Value {
		s := scale
		if by != 0 {
			s *= by
		}
		low := n.Apply(kernel.Embedding{Float: n.Float()}, ids, a)              // [V,R] -> [M,R]
		return n.Add(y, n.Apply(kernel.MatMul{TransB: true, Alpha: s}, low, b)) // [M,R] [C,R]ᵀ -> [M,C]
	}
}

// headLoRA returns W + s B A, the matrix that losses and logits take.
func (w *tables) headLoRA(n *nn.Net, weight *nn.Value) *nn.Value {
	vocab, width, r := weight.Type.Shape[0], weight.Type.Shape[1], w.c.Rank(headModule)
	if w.headA == nil {
		w.headA, w.headB = w.t.param(n, headModule+suffixA, r, width), w.t.param(n, headModule+suffixB, vocab, r)
		w.t.Layers = append(w.t.Layers, headModule)
	}
	update := n.Apply(kernel.MatMul{Alpha: w.c.Scale(headModule)}, w.headB, w.headA) // [V,R] [R,C] -> [V,C]
	// A GPU sums the head's gradient in fp32; going back, this rounds it for the products that follow.
	return n.Add(weight, n.Apply(kernel.Reshape{From: vocab, To: vocab}, update))
}

// embeddingPair returns A and B of a table of embeddings; ok is false for the tensors of another layer.
func embeddingPair(layer string, own []Param) (a, b Param, ok bool) {
	for _, p := range own {
		switch strings.TrimPrefix(p.Name, layer) {
		case suffixEmbeddingA:
			a = p
		case suffixEmbeddingB:
			b = p
		}
	}
	return a, b, a.Data != nil && b.Data != nil
}

// initEmbedding fills B from the normal distribution, as PEFT does. A stays zero.
func initEmbedding(f Fresh, b Param) error {
	normal := normalFrom(f.Uniform(b.Name))
	for i := range b.Data {
		b.Data[i] = float32(normal())
	}
	return nil
}

// mergeEmbedding adds s (B A)ᵀ to a table of embeddings, each sum in float64 and rounded once.
func mergeEmbedding(scale float64, a, b Param) Merger {
	rank, vocab, width := a.Shape[0], a.Shape[1], b.Shape[0]
	return func(table []float32, from int) {
		for ; len(table) >= width; table, from = table[width:], from+1 {
			for c, x := range table[:width] {
				sum := float64(x)
				for r := range rank {
					sum += float64(scale * float64(a.Data[r*vocab+from]) * float64(b.Data[c*rank+r]))
				}
				table[c] = float32(sum)
			}
		}
	}
}
