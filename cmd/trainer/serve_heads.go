package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/serve"
	"github.com/tierlora/tierlora/session"
)

// ofText lists the flags of serve that only models that write text have.
var ofText = []string{"slots", "system", "chat-template"}

// heads reports whether the models give scores or vectors of texts. It refuses a mixture of such adapters with others.
func (o *serveOptions) heads(ctx context.Context, c *console) (bool, error) {
	if len(o.named) == 0 {
		return o.baseHead(ctx, c)
	}
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
	return true, o.refuseText("adapter " + scores)
}

// refuseText refuses the flags of models that write text.
func (o *serveOptions) refuseText(who string) error {
	for _, name := range o.textFlags {
		return usage(fmt.Errorf("--%s: %s gives scores or vectors and writes no text: leave the flag out", name, who))
	}
	return nil
}

// baseHead reports whether the base model has a head, or is to give vectors.
func (o *serveOptions) baseHead(ctx context.Context, c *console) (bool, error) {
	env := environment(c, o.workers)
	if err := findModel(ctx, c, env, &o.model, ""); err != nil {
		return false, err
	}
	env.Log = nil // opening the engine says it
	b, err := session.OpenBase(ctx, o.model, env)
	if err != nil {
		return false, err
	}
	task := b.Task()
	if err := b.Close(); err != nil || task.Type == "" && o.pooling == "" {
		return false, err
	}
	return true, o.refuseText(o.model)
}

// servingHeads opens adapters that give scores or vectors and makes their server.
func (o *serveOptions) servingHeads(ctx context.Context, c *console) (*serving, error) {
	if o.images {
		return nil, usage(errors.New("--images is for models that answer: this one gives scores or vectors of texts"))
	}
	env, so, err := o.opening(ctx, c)
	if err != nil {
		return nil, err
	}
	po := infer.PredictorOptions{Adapters: o.named, Name: o.baseName(), MaxLen: o.maxLen}
	if o.pooling != "" {
		po.Pooling = &adapter.Pooling{Last: o.pooling == poolingLast, Normalise: true}
	}
	p, err := infer.NewPredictor(ctx, so, po, env)
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
