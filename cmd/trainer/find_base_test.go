package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/quant"
)

// TestQLoRAOverQuantised: without a section quantization, qlora takes a folder's quantised weights as they are, however
// they are stored, says so, and saves a configuration that runs again; with a section that says otherwise it is
// refused.
func TestQLoRAOverQuantised(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rows := filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(rows,
		[]byte(strings.Repeat(`{"input_ids": [3, 9, 27, 17, 51], "labels": [3, 9, 27, 17, 51]}`+"\n", 3)),
		0o600); err != nil {
		t.Fatal(err)
	}
	double := func(q quant.Config) quant.Config {
		q.DoubleQuant = true
		return q
	}
	single := func(q quant.Config) quant.Config {
		q.DoubleQuant = false
		return q
	}
	for name, c := range map[string]struct {
		want quant.Config
		said string
	}{
		"fp4":        {single(quant.DefaultOf("fp4")), "4 bits, type fp4, double_quant false"},
		"fp4_nested": {double(quant.DefaultOf("fp4")), "4 bits, type fp4, double_quant true"},
		"int8":       {quant.DefaultOf("int8"), "8 bits, type int8, double_quant false"},
		"nf4":        {single(quant.Default()), "4 bits, type nf4, double_quant false"},
		"nf4_nested": {quant.Default(), "4 bits, type nf4, double_quant true"},
	} {
		model, run := golden.Path(t, "prequantised/"+name), filepath.Join(dir, name)
		config := filepath.Join(dir, name+".yaml")
		text := "base_model: " + model + "\nadapter: qlora\nlora: {target_modules: [q_proj]}\ndataset: {path: " + rows +
			", format: tokenized, max_length: 16}\ntraining: {max_steps: 2, allow_zero_gradients: true}\noutput_dir: " +
			run + "\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		note := "note: the weights of " + model + " are quantised already: adapter qlora takes them as they are, " +
			c.said
		for _, words := range [][]string{{"plan", "--config", config}, {"train", "--config", config},
			{"eval", "--config", config, "--data", rows}} {
			if code, _, errOut := trainer(t, dir, nil, "", words...); code != 0 || strings.Count(errOut, note) != 1 {
				t.Errorf("%s, %s: exit code %d\n%s", name, words[0], code, errOut)
			}
		}
		saved, err := os.ReadFile(filepath.Join(run, "config.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if s := merged(t, string(saved)); s.Quantization == nil || *s.Quantization != c.want {
			t.Errorf("%s: the run's configuration has quantization %+v, want %+v", name, s.Quantization, c.want)
		}
		again := filepath.Join(dir, name+" again")
		if code, _, errOut := trainer(t, dir, nil, "", "train", "--config", filepath.Join(run, "config.yaml"), "--set",
			"output_dir="+again); code != 0 || strings.Contains(errOut, "quantised already") {
			t.Errorf("%s, again: exit code %d\n%s", name, code, errOut)
		}
		one, err1 := os.ReadFile(filepath.Join(run, "adapter_model.safetensors"))
		two, err2 := os.ReadFile(filepath.Join(again, "adapter_model.safetensors"))
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
			t.Errorf("%s: the saved configuration trains another adapter (%v, %v)", name, err1, err2)
		}
		if code, _, errOut := trainer(t, dir, nil, "", "verify", run); code != 0 {
			t.Errorf("%s, verify: exit code %d\n%s", name, code, errOut)
		}
		other := []string{"--set", "quantization.double_quant=" + map[bool]string{true: "false",
			false: "true"}[c.want.DoubleQuant]}
		if name == "int8" {
			other = []string{"--set", "quantization.type=nf4"}
		}
		if code, _, errOut := trainer(t, dir, nil, "", append([]string{"plan", "--config", config},
			other...)...); code == 0 || !strings.Contains(errOut, "are quantised already, as type") {
			t.Errorf("%s with another section: exit code %d\n%s", name, code, errOut)
		}
	}
}
