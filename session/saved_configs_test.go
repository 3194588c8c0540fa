package session

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
)

// savedModel is what transformers saved of a narrow model with all its layers: scripts/saved_configs.py.
type savedModel struct {
	Config  string
	Tensors map[string][]int
	// Absent are keys whose absence changes nothing in transformers: of config.json, or key.field of an object in it.
	Absent []string
}

func savedConfigs(t *testing.T, version string) (all map[string]savedModel) {
	f, err := os.Open(filepath.Join("testdata", "saved_configs", version+".json.zst"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSavedByTransformers: the config.json that save_pretrained writes of every family is read, with more than ten
// layers, and the network reads the tensors that are saved beside it, by their names and shapes.
func TestSavedByTransformers(t *testing.T) {
	for version, without := range map[string][]string{
		"5.17.0": {},
		"4.57.6": {"afmoe", "bamba", "cwm", "gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text", "glm4_moe_lite", "lfm2_moe", "minimax_m2", "ministral3", "nemotron_h", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text",
			"falcon_h1"}, // it has none, or bamba and falcon_h1, which were not saved with it
	} {
		all := savedConfigs(t, version)
		for _, family := range slices.Sorted(maps.Keys(families.Table)) {
			saved, ok := all[family]
			if !ok && !slices.Contains(without, family) {
				t.Errorf("%s: scripts/saved_configs.py has not %s", version, family)
			}
			if !ok {
				continue
			}
			t.Run(version+" "+family, func(t *testing.T) {
				c, err := families.ParseConfig([]byte(saved.Config))
				if err != nil {
					t.Fatal(err)
				}
				if c.NumLayers <= 10 {
					t.Errorf("it has %d layers", c.NumLayers)
				}
				var specs []weights.Spec
				for name, shape := range saved.Tensors {
					specs = append(specs, weights.Spec{Name: name, Shape: shape})
				}
				b := &Base{Name: family, Config: c, Weights: weights.Declare(specs, weights.BF16)}
				b.Config = families.Tie(b.Config, b.Weights)
				if err := families.Rename(b.Config, b.Weights); err != nil {
					t.Fatal(err)
				}
				build, err := families.For(b.Config)
				if err != nil {
					t.Fatal(err)
				}
				nw := Network{Config: b.Config, Build: build, Float: kernel.F32}
				n, _, in := nw.Declare("", Shape{Tokens: 4, Sequences: 1, MaxLen: 4})
				nw.Hidden(n, in)
				nw.Head(n)
				if err := n.Err(); err != nil {
					t.Fatal(err)
				}
				if err := b.Check(n); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestAbsentKeys: a key that transformers 5.17 fills in when it is absent means the same here, or is asked for. Two it
// is not asked of: the ids of tokens that begin and end a text, which the tokenizer's files say, and
// tie_word_embeddings around text_config, which transformers 4.57 does not read: without it, a folder with images that
// has no head is refused.
func TestAbsentKeys(t *testing.T) {
	for family, saved := range savedConfigs(t, "5.17.0") {
		whole, err := families.ParseConfig([]byte(saved.Config))
		if err != nil {
			t.Errorf("%s: %v", family, err) // TestSavedByTransformers says more
			continue
		}
		for _, key := range saved.Absent {
			if strings.HasSuffix(key, "bos_token_id") || strings.HasSuffix(key, "eos_token_id") || whole.Multimodal && key == "tie_word_embeddings" {
				continue
			}
			less := without(t, saved.Config, key)
			c, err := families.ParseConfig(less)
			switch {
			case err != nil && strings.Contains(err.Error(), key[strings.LastIndexByte(key, '.')+1:]+" is missing"):
			case err != nil:
				t.Errorf("%s without %s: %v", family, key, err)
			case !reflect.DeepEqual(alike(c), alike(whole)):
				t.Errorf("%s without %s: %s", family, key, difference(alike(c), alike(whole)))
			}
		}
	}
}

// alike writes what may be said in two ways in one.
func alike(c model.Config) model.Config {
	if c.LayerTypes == nil {
		kind := model.FullAttention
		if c.SlidingWindow > 0 {
			kind = model.SlidingAttention
		}
		c.LayerTypes = slices.Repeat([]string{kind}, c.NumLayers)
	}
	if len(c.DenseLayers) == 0 {
		c.DenseLayers = nil
	}
	return c
}

func without(t *testing.T, config, key string) []byte {
	var all map[string]any
	if err := json.Unmarshal([]byte(config), &all); err != nil {
		t.Fatal(err)
	}
	in := all
	if object, field, ok := strings.Cut(key, "."); ok {
		in, key = all[object].(map[string]any), field
	}
	delete(in, key)
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// difference names the fields in which two configurations differ.
func difference(got, want model.Config) string {
	var out []string
	a, b := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range a.NumField() {
		if x, y := a.Field(i).Interface(), b.Field(i).Interface(); !reflect.DeepEqual(x, y) {
			one, _ := json.Marshal(x)
			other, _ := json.Marshal(y)
			out = append(out, a.Type().Field(i).Name+" is "+string(one)+", with the key "+string(other))
		}
	}
	return strings.Join(out, "; ")
}
