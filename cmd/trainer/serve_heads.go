package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/serve"
)

// ofText lists the flags of serve that only models that write text have.
var ofText = []string{"slots", "system", "chat-template"}

// heads reports whether the adapters give scores or vectors of texts. It refuses a mixture of such adapters with
// others.
func (o *serveOptions) heads() (bool, error) {
	var scores, writes string // an adapter of each kind
	for _, a := range o.named {
		saved, err := adapter.Open(a.Dir)
		if err != nil {
			return false, err
		}
		if saved.Config.Task.Type == "" {
			writes = a.Name
		} else {
			scores = a.Name
		}
		if err := saved.Close(); err != nil {
			return false, err
		}
	}
	if scores == "" {
		return false, nil
	}
	if writes != "" {
		return false, usage(fmt.Errorf("adapter %s writes text, and adapter %s gives scores or vectors: serve them by "+
			"two servers", writes, scores))
	}
	for _, name := range o.textFlags {
		return false, usage(fmt.Errorf("--%s: adapter %s gives scores or vectors and writes no text: leave the flag "+
			"out", name, scores))
	}
	return true, nil
}

// servingHeads opens adapters that give scores or vectors and makes their server.
func (o *serveOptions) servingHeads(ctx context.Context, c *console) (*serving, error) {
	env, so, err := o.opening(ctx, c)
	if err != nil {
		return nil, err
	}
	p, err := infer.NewPredictor(ctx, so, infer.PredictorOptions{Adapters: o.named, MaxLen: o.maxLen}, env)
	if err != nil {
		return nil, err
	}
	v := &serving{Closer: p, device: p.On.Name(), need: p.Need(), lib: headLibrary(p)}
	if v.server, err = serve.NewHeads(v.lib, p, o.Options); err != nil {
		return nil, errors.Join(usage(err), p.Close())
	}
	return v, nil
}

// headLibrary names the models of a predictor.
func headLibrary(p *infer.Predictor) *serve.Library {
	lib := &serve.Library{Tokenizer: p.Base.Tokenizer, Vocabulary: p.Base.Config.VocabSize, MaxLen: p.MaxLen(),
		Width: p.Base.Config.HiddenSize, Created: time.Now()}
	for i := range p.Models() {
		m := &p.Models()[i]
		lib.Models = append(lib.Models, serve.Model{Name: m.Name, Adapter: m.Name, Head: m, Index: i})
	}
	return lib
}
