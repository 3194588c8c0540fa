package main

import (
	"testing"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/train"
)

// least is a configuration with only what must be given.
const least = "base_model: m\ndataset: {path: d.jsonl}\noutput_dir: out\n"

// merged is the configuration of a text, whose problems fail the test.
func merged(t *testing.T, text string) train.Spec {
	t.Helper()
	c, problems := config.Merge("run.yaml", []byte(text), nil, nil)
	for _, p := range problems {
		t.Error(p)
	}
	return c.Spec
}
