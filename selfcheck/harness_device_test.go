//go:build gpu

package selfcheck

import (
	"context"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
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

func network(t testing.TB, b *session.Base, float kernel.DType, scheme *quant.Config,
	c *adapter.Config) session.Network {
	t.Helper()
	build, err := families.For(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	return session.Network{Config: b.Config, Build: build, Float: float, Scheme: scheme,
		Method: adapter.Methods[adapter.DefaultMethod], Adapter: *c, Adapted: true}
}
