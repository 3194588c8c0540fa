package main

import (
	"context"
	"fmt"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/session"
)

// findModel makes sure that a model is there; where none is given it is the one that an adapter's folder names.
func findModel(ctx context.Context, c *console, env session.Env, model *string, dir string) error {
	if *model != "" {
		return checkModel(ctx, *model, env)
	}
	var err error
	if *model, err = adapter.BaseModel(dir); err != nil {
		return usage(fmt.Errorf("%w; name a model: --model DIR", err))
	}
	if err := checkModel(ctx, *model, env); err != nil {
		return unfit(fmt.Errorf("the base model that adapter %s names: %w; name where it is now: --model DIR", dir, err))
	}
	c.say("base model: %s, which the adapter names", *model)
	return nil
}
