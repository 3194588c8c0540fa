package infer

import (
	"context"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/session"
)

func stories(t testing.TB) *session.Base {
	t.Helper()
	b, err := session.OpenBase(context.Background(), golden.StoriesDir(t), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// network is the base model alone.
func network(t testing.TB, b *session.Base, float kernel.DType) session.Network {
	t.Helper()
	build, err := families.For(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	return session.Network{Config: b.Config, Build: build, Float: float}
}

// bound is a logits step with memory, loaded.
func (l *logitsStep) bound(t testing.TB, b *session.Base, on graph.Machine) *logitsRun {
	t.Helper()
	m, err := session.Hold(on, func(m graph.Store) error { return b.Load(context.Background(), l.Net, m, 2) }, &l.Program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	r, err := l.bind(m, m.Runs[0])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func numbers(x kernel.Tensor) []float64 {
	if x.DType == kernel.F64 {
		return x.F64()
	}
	return golden.Numbers(x.F32())
}
