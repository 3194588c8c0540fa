package importer

import (
	"strings"
	"testing"
)

// Files that train other weights, longer rows or joined texts say so before anything else, and those that differ in a
// spelling alone do not.
func TestOtherWeightsAreChanges(t *testing.T) {
	for _, c := range []struct{ name, file, text, key, say string }{
		{"axolotl with one", "a.yml", "base_model: m\nadapter: lora\nsequence_len: 64\ndatasets: [{path: d, type: alpaca}]\nmodel_type: LlamaForCausalLM\ntokenizer_type: AutoTokenizer\n" +
			"plugins: [axolotl.integrations.liger.LigerPlugin, axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n", "", ""},
		{"axolotl, a plugin that trains", "a.yml", "base_model: m\nadapter: lora\ndatasets: [{path: d, type: alpaca}]\nplugins: [x.KDPlugin]\n", "plugins", "there are no plugins"},
		{"llama-factory, joined texts", "l.yml", "model_name_or_path: m\nstage: pt\nfinetuning_type: lora\noutput_dir: o\n", "packing", "texts are joined"},
		{"trl, an adapter made by code", "t.py", "SFTTrainer(model='m', args=SFTConfig(output_dir='o'), peft_config=get_peft_config(a))\n", "LoraConfig", "made by code"},
		{"trl with one", "t.py", "SFTTrainer(model='m', args=SFTConfig(output_dir='o'), peft_config=LoraConfig(r=4))\n", "", ""},
		{"trl, no length", "t.py", "SFTTrainer(model='m', args=SFTConfig(output_dir='o', max_length=None), peft_config=LoraConfig(r=4))\n", "SFTConfig(max_length)", "no row is cut there"},
		{"trl, a model of images", "t.py", "m = Qwen3VLForConditionalGeneration.from_pretrained('m')\nSFTTrainer(model=m, peft_config=LoraConfig(r=4))\n", imageModel, "the language model alone"},
		{"axolotl, a method of another name", "a.yml",
			"base_model: m\nadapter: llama-adapter\ndatasets: [{path: d, type: alpaca}]\n", "adapter",
			"there is no method of this name, so LoRA is taken"},
		{"axolotl, a head that DoRA leaves", "a.yml", "base_model: m\nadapter: lora\npeft_use_dora: true\n" +
			"lora_target_modules: [q_proj, lm_head]\ndatasets: [{path: d, type: alpaca}]\n", "lora_target_modules",
			"adapter: dora leaves"},
		{"torchtune, an adapted head", "t.yaml", "model: {_component_: torchtune.models.qwen2.lora_qwen2_7b, " +
			"lora_attn_modules: [q_proj], apply_lora_to_output: true}\noptimizer_in_bwd: true\n", "", ""},
		{"torchtune", "t.yaml", "model: {_component_: torchtune.models.qwen2.lora_qwen2_0_5b, lora_rank: 8}\nbatch_size_val: 2\nenable_activation_checkpointing: false\n", "", ""},
		{"torchtune, Alpaca between marks", "t.yaml", "model: {_component_: torchtune.models.llama3.lora_llama3_8b}\ntokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer}\n" +
			"dataset: {_component_: torchtune.datasets.alpaca_dataset}\n", "dataset._component_", "marks of messages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, err := Read(c.file, []byte(c.text), "")
			if err != nil {
				t.Fatal(err)
			}
			own := func(name string) string {
				if name == "base_model" || name == "seed" {
					return name
				}
				return ""
			}
			kind := func(path string) Kind {
				switch path {
				case "dataset.packing":
					return Truth
				case "lora.r", "dataset.max_length":
					return Whole
				case "lora.target_modules":
					return List
				}
				return TextKind
			}
			changed := Translate(in, Options{Kind: kind, Own: own}).Changed()
			found := c.key == ""
			for _, e := range changed {
				switch {
				case c.key == "" && !e.Default:
					t.Errorf("%s: %s: %s", e.Key, e.Value, e.Say)
				case e.Key == c.key && strings.Contains(e.Say, c.say):
					found = true
				}
			}
			if !found {
				t.Errorf("no change of %s in %v", c.key, changed)
			}
		})
	}
	if _, err := Read("r.yaml", []byte("model_name_or_path: m\nuse_peft: true\nlora_r: 16\ndataset_name: d\n"), ""); err == nil || !strings.Contains(err.Error(), "TRL's own commands") {
		t.Errorf("a file for TRL's commands: %v", err)
	}
}
