package export

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export/llamacpp"
	"github.com/tierlora/tierlora/session"
)

// ggufLoRA writes an adapter as a GGUF file of its own.
func ggufLoRA(ctx context.Context, o Options, env session.Env) (r Report, err error) {
	c, names, err := openCheckpoint(ctx, o, env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.s.Close()) }()
	updates, alpha, err := c.lora(o.Adapter)
	if err != nil {
		return r, err
	}
	plan, err := llamacpp.Adapter(llamacpp.Model{Name: title(o.Adapter), Config: c.s.Base.Config, Source: c,
		Tensors: names}, updates, alpha)
	if err != nil {
		return r, err
	}
	answers, _, err := answering(c.s.Base, []string{o.Adapter}, map[string][]byte{}, false)
	if err != nil {
		return r, err
	}
	if answers.other && !o.Separate { // Ollama's template goes beside the file
		plan.Notes = append(plan.Notes, fmt.Sprintf("the adapter was trained with another chat template than the "+
			"base model's, for which the file has no place: "+
			"start llama.cpp with --jinja --chat-template-file %s", filepath.Join(answers.Template, templateFile)))
	}
	return writeGGUF(ctx, o.Out, plan, o, env, c)
}

// lora reads the updates of an adapter's linear layers, and its alpha.
func (c *checkpoint) lora(dir string) (updates map[string]*llamacpp.Update, alpha float64, err error) {
	saved, err := adapter.Open(dir)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, saved.Close()) }()
	if !saved.Method.Sums {
		return nil, 0, notPairs(saved.Method)
	}
	_, trained, err := c.s.Net.Declared()
	if err != nil {
		return nil, 0, err
	}
	if err := refuseSaved(saved.Config); err != nil {
		return nil, 0, err
	}
	if len(trained.Parameters) > 0 {
		return nil, 0, fmt.Errorf("the adapter changes %s, a parameter of experts, which has no place in a GGUF "+
			"adapter: export the merged model (--format gguf --adapter)",
			trained.Parameters[0].Name)
	}
	params := trained.List()
	if err := saved.Read(params); err != nil {
		return nil, 0, err
	}
	updates = map[string]*llamacpp.Update{}
	for _, p := range params {
		path, isA := strings.CutSuffix(p.Name, ".lora_A.weight")
		if !isA {
			var isB bool
			if path, isB = strings.CutSuffix(p.Name, ".lora_B.weight"); !isB {
				return nil, 0, fmt.Errorf("the adapter's tensor %s is none of LoRA's", p.Name)
			}
		}
		u := updates[path]
		if u == nil {
			u = &llamacpp.Update{Scale: saved.Config.Scale(path)}
			updates[path] = u
		}
		if isA {
			u.A, u.Rank, u.In = p.Data, p.Shape[0], p.Shape[1]
		} else {
			u.B, u.Out = p.Data, p.Shape[0]
		}
	}
	return updates, saved.Config.Alpha, nil
}
