package adapter

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// FuzzConfig: an adapter_config.json is read or refused, never a panic, and what was read is valid and can
// be written and read again.
func FuzzConfig(f *testing.F) {
	for _, name := range []string{"train/init", "lora_grad/lora_qv", "families/qwen2.lora", "families/mistral.lora", "ours", "experts/gpt_oss_full.lora"} {
		raw, err := os.ReadFile(filepath.Join(golden.Path(f, name), ConfigFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"peft_type":"LORA","r":1,"lora_alpha":1e300,"target_modules":[".*"],"alpha_pattern":{"a|b":2,".*":3},"init_lora_weights":[{}]}`))
	f.Add([]byte(`{"peft_type":"LORA","r":1,"lora_alpha":1,"target_modules":["q_proj"],` +
		`"trainable_token_indices":{"a.lm_head":[3]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := parseConfig(raw)
		if err != nil {
			return
		}
		c := s.Config
		if problems := c.Validate(); problems != nil {
			t.Fatalf("accepted with %v", problems)
		}
		const layer = "model.layers.0.self_attn.q_proj"
		files, err := s.Method.Encode(c, s.BaseModel, []string{layer}, nil)
		if err != nil {
			t.Fatalf("can't be written: %v", err)
		}
		again, err := parseConfig(files[ConfigFile])
		if err != nil {
			t.Fatalf("can't be read again: %v\n%s", err, files[ConfigFile])
		}
		back := again.Config
		if back.R != c.R || back.Alpha != c.Alpha || !reflect.DeepEqual(back.lora(), c.lora()) || back.Dropout != c.Dropout {
			t.Fatalf("read again as %+v, was %+v", back, c)
		}
		if back.TargetModules.Match(layer) != c.TargetModules.Match(layer) && (len(c.TargetModules) == 0 || c.TargetModules[0] != AllLinear) {
			t.Fatalf("targets read again as %v, were %v", back.TargetModules, c.TargetModules)
		}
		if !slices.Equal(back.TargetParameters, c.TargetParameters) {
			t.Fatalf("parameters read again as %v, were %v", back.TargetParameters, c.TargetParameters)
		}
	})
}
