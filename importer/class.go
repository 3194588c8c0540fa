package importer

import (
	"slices"
	"strings"
)

// Class says what follows from a key that is left out or translated with a difference. If no entry has the class
// Changes, a run of the translation is the same training.
type Class string

// The classes of entries that are not taken unchanged. Entries that are have the class "".
const (
	// Changes marks keys that change prompts, tokens, loss masks, modules, the loss or the order of steps.
	Changes Class = "changes what is trained"
	// ByHand marks keys that change no number of the training but that a person may want, such as destinations of
	// results and trackers.
	ByHand Class = "to do by hand"
	// Nothing marks keys whose effect already exists here, or that have no meaning here.
	Nothing Class = "nothing to do"
)

// Classes lists all classes in the order in which they are printed.
var Classes = []Class{Changes, ByHand, Nothing}

// classes gives the class of keys that have a rule or a counterpart of their own; the table of missing keys in keys.go
// gives that of others. A key in neither table is assumed to change what is trained.
var classes = func() map[string]Class {
	all := map[string]Class{}
	for class, names := range map[Class]string{
		ByHand: "eval_steps eval_strategy evaluation_strategy eval_on_start eval_delay evals_per_epoch save_steps " +
			"save_strategy saves_per_epoch save_total_limit logging_steps logging_strategy logging_dir report_to " +
			"use_wandb use_tensorboard use_mlflow use_trackio trackio_project_name trackio_run_name wandb_mode " +
			"wandb_project wandb_name mlflow_tracking_uri mlflow_experiment_name mlflow_run_name run_name " +
			"generate_samples overwrite_output_dir output_dir ddp_timeout gpu_memory_limit max_memory no_cuda " +
			"use_cpu per_device_eval_batch_size eval_batch_size eval_dataset test_datasets load_best_model_at_end",
		Nothing: "gradient_checkpointing use_gradient_checkpointing disable_gradient_checkpointing " +
			"gradient_checkpointing_kwargs use_unsloth_gc activation_offloading pad_to_sequence_len " +
			"pad_to_multiple_of padding_free batch_flattening eval_packing eval_sample_packing dataset_prepared_path " +
			"tokenized_path cache_dir auto_find_batch_size streaming enable_activation_checkpointing " +
			"enable_activation_offloading batch_size_val merges_file merges_path vocab_path",
	} {
		for _, name := range strings.Fields(names) {
			all[name] = class
		}
	}
	return all
}()

// sameNumbers are keys whose translation differs but changes no formula: another storage of AdamW's moments, or a seed
// with a wider scope. A value that no rule knows is assumed to change what is trained.
var sameNumbers = strings.Fields("finetuning_type adapter optimizer optim bf16 fp16 tf32 bnb_4bit_compute_dtype " +
	"data_seed random_state load_in_16bit")

// classify sets the class of every entry whose rule did not set it.
func (t *translation) classify() {
	for i := range t.entries {
		e := &t.entries[i]
		if e.Group == Taken {
			e.Class = ""
			continue
		}
		if e.Class != "" {
			continue
		}
		name := bareKey(e.Key)
		name = strings.ReplaceAll(strings.ToLower(name[strings.LastIndexByte(name, '.')+1:]), "-", "_")
		class, own := classes[name]
		switch known := t.keys[name]; {
		case e.Group == Different && slices.Contains(sameNumbers, name):
			e.Class = Nothing
		case own && (e.Group == Different || known.Class == ""):
			e.Class = class
		case known.Class != "":
			e.Class = known.Class
		default:
			e.Class = Changes
		}
	}
}

// as sets the class of the entries from index n on, for a rule that knows it better than the tables.
func (t *translation) as(n int, class Class) {
	for i := n; i < len(t.entries); i++ {
		if t.entries[i].Group != Taken {
			t.entries[i].Class = class
		}
	}
}

// Changed returns the entries that change what is trained.
func (r Result) Changed() (all []Entry) {
	for _, e := range r.Entries {
		if e.Class == Changes {
			all = append(all, e)
		}
	}
	return all
}
