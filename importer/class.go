package importer

import (
	"slices"
	"strings"
)

// Class says what follows from a key that is left out or taken with a difference. A run of the translation is the same
// training where there is no entry of Changes.
type Class string

// The classes of entries that are not taken as they are; of those that are it is "".
const (
	// Changes is a key that changes prompts, tokens, masks, modules, the loss or the order of steps.
	Changes Class = "changes what is trained"
	// ByHand is a key that changes no number of the training and that a person may want: where results go, who is told.
	ByHand Class = "to do by hand"
	// Nothing is a key whose effect is there already, or that means nothing here.
	Nothing Class = "nothing to do"
)

// Classes are all of them, in the order that they are printed in.
var Classes = []Class{Changes, ByHand, Nothing}

// classes are the classes of keys that keys.go's table of missing ones does not have: those with a rule or a counterpart
// of their own. Whatever is in neither changes what is trained, as far as anybody knows.
var classes = func() map[string]Class {
	all := map[string]Class{}
	for class, names := range map[Class]string{
		ByHand: "eval_steps eval_strategy evaluation_strategy eval_on_start eval_delay evals_per_epoch save_steps save_strategy saves_per_epoch save_total_limit " +
			"logging_steps logging_strategy logging_dir report_to use_wandb use_tensorboard use_mlflow use_trackio trackio_project_name trackio_run_name wandb_mode wandb_project wandb_name " +
			"mlflow_tracking_uri mlflow_experiment_name mlflow_run_name run_name generate_samples overwrite_output_dir output_dir ddp_timeout gpu_memory_limit max_memory no_cuda use_cpu " +
			"per_device_eval_batch_size eval_batch_size eval_dataset test_datasets load_best_model_at_end",
		Nothing: "gradient_checkpointing use_gradient_checkpointing disable_gradient_checkpointing gradient_checkpointing_kwargs use_unsloth_gc activation_offloading " +
			"pad_to_sequence_len pad_to_multiple_of padding_free batch_flattening eval_packing eval_sample_packing dataset_prepared_path tokenized_path cache_dir " +
			"auto_find_batch_size streaming enable_activation_checkpointing enable_activation_offloading batch_size_val merges_file merges_path vocab_path",
	} {
		for _, name := range strings.Fields(names) {
			all[name] = class
		}
	}
	return all
}()

// sameNumbers are keys whose values are taken with a difference that changes no formula: AdamW's moments in another storage, a
// seed that holds for more. A value that no rule knows changes what is trained.
var sameNumbers = strings.Fields("finetuning_type adapter optimizer optim bf16 fp16 tf32 bnb_4bit_compute_dtype data_seed random_state load_in_16bit")

// classify gives every entry its class, where its rule did not.
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

// as gives the entries from the n-th on a class that their rule knows better than the tables.
func (t *translation) as(n int, class Class) {
	for i := n; i < len(t.entries); i++ {
		if t.entries[i].Group != Taken {
			t.entries[i].Class = class
		}
	}
}

// Changed are the entries that change what is trained.
func (r Result) Changed() (all []Entry) {
	for _, e := range r.Entries {
		if e.Class == Changes {
			all = append(all, e)
		}
	}
	return all
}
