package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/dataset/logprobs"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// TeacherPrefix begins the names in memory of a teacher's tensors.
const TeacherPrefix = "teacher: "

// Teacher is a frozen model that stands beside the session's model in one computation.
type Teacher struct {
	Base *Base
	net  Network // its configuration and how its weights are stored
}

// UseTeacher opens a teacher for the session's model, by a name as Options.Model has it. scheme is how its linear layers
// are stored, nil = as they are; a checkpoint that is quantised already stays as it is. The teacher must have the
// session's tokens, so that a number of either model means the same token. Close closes it.
func (s *Session) UseTeacher(ctx context.Context, name string, scheme *quant.Config) error {
	base, err := OpenBase(ctx, name, s.Env)
	if err != nil {
		return err
	}
	t := &Teacher{Base: base}
	s.Net.Teacher = t
	build, err := families.For(base.Config)
	if err != nil {
		return err
	}
	t.net = Network{Config: base.Config, Build: build, Float: s.Net.Float, Scheme: scheme}
	t.net.Keep(base)
	own, other := s.Base.Config.VocabSize, base.Config.VocabSize
	common, most := min(own, other), max(own, other)
	for _, b := range []*Base{s.Base, base} { // heads may be padded to different sizes, behind the last token
		if logprobs.Vocabulary(b.Tokenizer, common) != logprobs.Vocabulary(b.Tokenizer, most) {
			return fmt.Errorf("%s has a vocabulary of %d tokens, and %s has %d, and the tokenizer of %s has a token "+
				"that the smaller one lacks: a teacher and its student must have the same tokens", name, other,
				s.Base.Name, own, b.Name)
		}
	}
	if a, b := logprobs.Vocabulary(s.Base.Tokenizer, common), logprobs.Vocabulary(base.Tokenizer, common); a != b {
		return fmt.Errorf("the tokenizer of %s gives other texts to token ids (hash %.12s) than that of %s (hash "+
			"%.12s): a teacher and its student must have the same tokens", name, b, s.Base.Name, a)
	}
	return nil
}

// SameTokens reports whether two models give all token ids that both have the same texts.
func SameTokens(a, b *Base) bool {
	common := min(a.Config.VocabSize, b.Config.VocabSize)
	return logprobs.Vocabulary(a.Tokenizer, common) == logprobs.Vocabulary(b.Tokenizer, common)
}

// CheckLength refuses sequences that are longer than the teacher's positions.
func (t *Teacher) CheckLength(tokens int) error {
	if most := t.Base.Config.LongestRow(); tokens > most {
		return fmt.Errorf("sequences of %d tokens are longer than the teacher's %d positions: lower dataset.max_length",
			tokens, most)
	}
	return nil
}

// Storage describes how the teacher's linear layers are stored.
func (t *Teacher) Storage() string {
	if t.net.Scheme == nil {
		return "as numbers"
	}
	return t.net.Scheme.Type
}

// Taught builds the teacher's layers over a batch, and returns its hidden states [M,D], its vocabulary head [U,D] and
// the soft cap of its logits. U may be another number of tokens than the student's. The teacher is another model, or
// the session's own with the adapter of Reference; then no weight exists twice.
func (nw Network) Taught(n *nn.Net, in nn.Batch) (hidden, head *graph.Value, logitCap float64) {
	t := nw.Teacher
	switch {
	case nw.Reference != nil:
		nn.AsReference(n, func() { hidden, head = nw.Hidden(n, in), nw.Head(n) })
		return hidden, head, nw.Config.LogitCap
	case t == nil:
		n.Fail(errors.New("the objective learns from a teacher, and no teacher is loaded"))
		return nil, nil, 0
	case nw.Layout.Sharded():
		n.Fail(errors.New("a teacher is not sharded over devices: training.base_sharding must be never"))
	}
	other := nn.Beside(n, TeacherPrefix, nn.Options{Float: nw.Float, Scheme: t.net.Scheme, Stored: t.net.Stored,
		Ranks: nw.Ranks})
	return t.net.Hidden(other, in), t.net.Head(other), t.net.Config.LogitCap
}

// load fills the teacher's weights of a network.
func (t *Teacher) load(ctx context.Context, n *nn.Net, m graph.Store, workers int) error {
	if t == nil || nn.Other(n) == nil {
		return nil
	}
	if err := t.Base.Load(ctx, nn.Other(n), m, workers); err != nil {
		return fmt.Errorf("teacher: %w", err)
	}
	return nil
}

// Check compares the teacher's part of a network with the teacher's checkpoint.
func (t *Teacher) Check(n *nn.Net) error {
	if t == nil || nn.Other(n) == nil {
		return nil
	}
	if err := t.Base.Check(nn.Other(n)); err != nil {
		return fmt.Errorf("teacher: %w", err)
	}
	return nil
}
