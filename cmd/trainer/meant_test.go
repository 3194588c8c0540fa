package main

import (
	"strings"
	"testing"
)

// TestMeant: keys given as flags, settings given as words and texts without a flag are told how to be written.
func TestMeant(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a key as a flag":     {args: []string{"train", "x.yaml", "--learning-rate", "1"}, want: "unknown flag: --learning-rate; a key of the configuration is set by --set training.learning_rate=VALUE"},
		"another's flag":      {args: []string{"plan", "x.yaml", "--per_device_train_batch_size=2"}, want: "unknown flag: --per_device_train_batch_size; a key of the configuration is set by --set training.batch_size=VALUE"},
		"a key with dots":     {args: []string{"x.yaml", "--training.max_steps", "2"}, want: "is set by --set training.max_steps=VALUE"},
		"a setting as a word": {args: []string{"train", "x.yaml", "lr=1e-5"}, want: "trainer train takes one configuration; write lr=1e-5 as --set training.learning_rate=1e-5"},
		"a setting, no train": {args: []string{"x.yaml", "training.max_steps=3"}, want: "takes one configuration; write training.max_steps=3 as --set training.max_steps=3"},
		"two configurations":  {args: []string{"plan", "x.yaml", "y.yaml"}, want: "trainer plan takes one configuration, got x.yaml and y.yaml"},
		"a prompt as a word":  {args: []string{"generate", "--model", "m", "--chat", "Hello?"}, want: `trainer generate takes no argument, got "Hello?"; write a text as --prompt TEXT`},
		"a folder as a word":  {args: []string{"merge", "runs/a"}, want: `trainer merge takes no argument, got "runs/a"; name an adapter by --adapter DIR, a model by --model DIR`},
		"a model as a word":   {args: []string{"inspect", "template", "m"}, want: `got "m"; name a model by --model DIR`},
		"verify of nothing":   {args: []string{"verify", "nothing"}, want: "no run: stat nothing: no such file or directory; verify takes the output folder of a run"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, _, errOut := trainer(t, t.TempDir(), nil, "", c.args...); code != 2 || !strings.Contains(errOut, c.want) {
				t.Errorf("exit code %d, want 2 and %q\n%s", code, c.want, errOut)
			}
		})
	}
}
