package main

import (
	"context"
	"fmt"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// findBase finds the base model of a configuration and says what it takes from it.
func findBase(ctx context.Context, l *config.Loaded, c *console, env session.Env) error {
	note, err := takeStorage(ctx, l, env)
	if note != "" {
		c.say("note: %s", note)
	}
	return err
}

// takeStorage finds the base model. Where its weights are quantised already, a configuration without a section quantization takes
// them as they are; note says so.
func takeStorage(ctx context.Context, l *config.Loaded, env session.Env) (note string, err error) {
	name := l.Spec.BaseModel
	if err := checkModel(ctx, name, env); err != nil || !l.AssumedStorage {
		return "", err
	}
	var have *quant.Config
	if have = session.StorageOf(ctx, name, env); have == nil {
		return "", nil
	}
	l.Spec.Quantization = have
	return fmt.Sprintf("the weights of %s are quantised already: adapter %s takes them as they are, %d bits, type %s, double_quant %v",
		name, l.Spec.Adapter, have.Bits, have.Type, have.DoubleQuant), nil
}
