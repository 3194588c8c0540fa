package main

import (
	"fmt"
	"strings"
)

// foreign gives our key for the names that Axolotl, LLaMA-Factory and transformers have. A name is also known with
// the dashes of a command line. Where one of our keys is not yet in the schema, the name is simply unknown.
var foreign = map[string]string{
	"model_name_or_path":           "base_model",
	"model":                        "base_model",
	"finetuning_type":              "adapter",
	"peft_type":                    "adapter",
	"micro_batch_size":             "training.batch_size",
	"per_device_train_batch_size":  "training.batch_size",
	"train_batch_size":             "training.batch_size",
	"num_epochs":                   "training.epochs",
	"num_train_epochs":             "training.epochs",
	"max_train_steps":              "training.max_steps",
	"num_steps":                    "training.max_steps",
	"lr":                           "training.learning_rate",
	"optim":                        "training.optimizer",
	"lr_scheduler_type":            "training.lr_scheduler",
	"bf16":                         "training.precision",
	"fp16":                         "training.precision",
	"tf32":                         "training.precision",
	"mixed_precision":              "training.precision",
	"initial_scale_power":          "training.loss_scale",
	"loss_scale_window":            "training.loss_scale_interval",
	"growth_interval":              "training.loss_scale_interval",
	"adam_eps":                     "training.adam_epsilon",
	"gradient_clipping":            "training.max_grad_norm",
	"evals_per_epoch":              "training.eval_steps",
	"saves_per_epoch":              "training.save_steps",
	"auto_resume_from_checkpoints": "training.resume",
	"resume_from_checkpoint":       "training.resume",
	"lora_r":                       "lora.r",
	"lora_rank":                    "lora.r",
	"rank":                         "lora.r",
	"lora_alpha":                   "lora.alpha",
	"lora_dropout":                 "lora.dropout",
	"lora_target_modules":          "lora.target_modules",
	"lora_target":                  "lora.target_modules",
	"peft_use_rslora":              "lora.use_rslora",
	"lora_model_dir":               "lora.init_from",
	"adapter_name_or_path":         "lora.init_from",
	"load_in_4bit":                 "quantization.bits",
	"quantization_bit":             "quantization.bits",
	"bnb_4bit_quant_type":          "quantization.type",
	"quantization_type":            "quantization.type",
	"double_quantization":          "quantization.double_quant",
	"bnb_4bit_use_double_quant":    "quantization.double_quant",
	"dataset_info":                 "dataset.path",
	"data_files":                   "dataset.path",
	"train_file":                   "dataset.path",
	"validation_file":              "dataset.val_path",
	"sequence_len":                 "dataset.max_length",
	"cutoff_len":                   "dataset.max_length",
	"max_seq_length":               "dataset.max_length",
	"sample_packing":               "dataset.packing",
	"neat_packing":                 "dataset.packing",
	"val_set_size":                 "dataset.val_split",
	"val_size":                     "dataset.val_split",
	"train_on_inputs":              "dataset.train_on_prompt",
	"dataset_prepared_path":        "dataset.cache_dir",
	"tokenized_path":               "dataset.cache_dir",
}

// foreignRemarks answer names that stand for a value, or for something slightly else.
var foreignRemarks = map[string]string{
	"lora_target_linear": "write lora.target_modules: all-linear",
	"bf16":               "write training.precision: bf16, or auto",
	"fp16":               "write training.precision: fp16, or auto",
	"tf32":               "write training.precision: tf32",
	"datasets":           "write dataset.path and dataset.format; there is one data set",
	"bnb_config_kwargs":  "write quantization.type, .block_size and .double_quant",
	"evals_per_epoch":    "training.eval_steps counts optimizer steps here",
	"saves_per_epoch":    "training.save_steps counts optimizer steps here",
	"load_in_4bit":       "write quantization.bits: 4, or adapter: qlora",
	"chat_template":      noTemplate,
	"template":           noTemplate,
}

const noTemplate = "no data format uses a chat template; put the whole prompt into the rows (dataset.format completion) and remove the key"

// retired are keys of earlier versions. Left empty they are passed over: old runs have them in their config.yaml.
var retired = map[string]bool{"dataset.template": true}

// unknownKey is what is said about a name that the section does not have, and the key that was most likely meant, or "".
func unknownKey(section *key, name string) (text, meant string) {
	plain := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	if remark, ok := foreignRemarks[plain]; ok {
		return "is not a key here: " + remark, foreign[plain]
	}
	if ours := foreign[plain]; ours != "" {
		if k, rest := schema.find(ours); rest == "" {
			return fmt.Sprintf("is %s here", k.path), k.path
		}
	}
	if section.child(plain) == nil { // the right name in the wrong place
		for _, k := range append(schema.leaves(), schema.keys...) {
			if k.name == plain {
				if k.path == k.name {
					return "stands at the top level here", k.path
				}
				return fmt.Sprintf("is %s here", k.path), k.path
			}
		}
	}
	if near := nearest(plain, section.names()); near != "" {
		return fmt.Sprintf("unknown key; the nearest is %s", near), section.child(near).path
	}
	var paths []string
	for _, k := range schema.leaves() {
		paths = append(paths, k.path)
	}
	for _, path := range paths { // as part of the name: "lora.rnk" for "rnk"
		if _, last, ok := strings.Cut(path, "."); ok && nearest(plain, []string{last}) != "" {
			return fmt.Sprintf("unknown key; the nearest is %s", path), path
		}
	}
	what := "the keys here are "
	if section.path != "" {
		what = "the keys of " + section.path + " are "
	}
	return "unknown key; " + what + strings.Join(section.names(), ", "), ""
}

// nearest is the name with the fewest edits to s, or "" when none is near. Of equally near ones it is the first.
func nearest(s string, names []string) string {
	best, least := "", max(1, len(s)/3)+1
	for _, n := range names {
		if d := editDistance(s, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
