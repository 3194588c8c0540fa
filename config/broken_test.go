package config

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
)

func problemsOf(text string, environ, sets []string) string {
	_, problems := Merge("run.yaml", []byte(text), environ, sets)
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// TestBrokenConfigs: what is wrong, and the exact words that say so.
// windowsPath is what a backslash in double quotes that YAML refuses is answered.
const windowsPath = `a backslash in double quotes begins an escape such as \n or \u00e9, and this one is none: write ` +
	`a Windows path in single quotes ('C:\new\data') or with slashes (C:/new/data)`

func TestBrokenConfigs(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"typo", least + "training:\n  lerning_rate: 1e-3\n",
			"run.yaml:5:3: training.lerning_rate: unknown key; the nearest is training.learning_rate"},
		{"typo at the top", least + "sead: 1\n",
			"run.yaml:4:1: sead: unknown key; the nearest is seed"},
		{"typo in a section name", least + "trainning: {}\n",
			"run.yaml:4:1: trainning: unknown key; the nearest is training"},
		{"three typos", "base_modle: m\ndatset: {path: d.jsonl}\noutput_dir: out\ntraining: {max_step: 0}\n",
			"run.yaml:1:1: base_modle: unknown key; the nearest is base_model\n" +
				"run.yaml:2:1: datset: unknown key; the nearest is dataset\n" +
				"run.yaml:4:12: training.max_step: unknown key; the nearest is training.max_steps"},
		{"far from any key", least + "lora: {xylophone: 1}\n",
			"run.yaml:4:8: lora.xylophone: unknown key; the keys of lora are alpha, alpha_pattern, bias, dropout, " +
				"ensure_weight_tying, exclude_modules, init_from, init_lora_weights, layers_pattern, " +
				"layers_to_transform, lora_bias, loraplus_lr_ratio, modules_to_save, r, " +
				"rank_pattern, target_modules, target_parameters, trainable_token_indices, use_rslora"},
		{"Axolotl name", least + "micro_batch_size: 4\n",
			"run.yaml:4:1: micro_batch_size: unknown key; use training.batch_size"},
		{"Axolotl name in a section", least + "training:\n  num_epochs: 3\n",
			"run.yaml:5:3: training.num_epochs: unknown key; use training.epochs"},
		{"LLaMA-Factory name", least + "per-device-train-batch-size: 4\ncutoff_len: 10\n",
			"run.yaml:4:1: per-device-train-batch-size: unknown key; use training.batch_size\n" +
				"run.yaml:5:1: cutoff_len: unknown key; use dataset.max_length"},
		{"streaming of others", least + "streaming: true\nbuffer_size: 16384\n",
			"run.yaml:4:1: streaming: unknown key; use dataset.streaming\n" +
				"run.yaml:5:1: buffer_size: not supported: with dataset.streaming rows are shuffled and packed " +
				"within windows of 4096; without it over all rows"},
		{"a stream without an end", "base_model: m\ndataset: {path: d.jsonl, streaming: true, val_split: 0.1, " +
			"cache_dir: c}\noutput_dir: out\n",
			"run.yaml:2:54: dataset.val_split: with dataset.streaming the rows are not counted before they are " +
				"trained on, so no part of them can be held out: " +
				"name validation rows in dataset.val_path or dataset.val_sources\n" +
				"run.yaml:2:70: dataset.cache_dir: with dataset.streaming nothing is written to disk: remove one of " +
				"them\n" +
				"run.yaml: training.max_steps: is 0, and dataset.streaming does not know how many rows an epoch has: " +
				"write how many steps to make"},
		{"a value in Axolotl", least + "lora_target_linear: true\n",
			"run.yaml:4:1: lora_target_linear: unknown key: write lora.target_modules: all-linear"},
		{"right name, wrong place", least + "learning_rate: 1e-3\n",
			"run.yaml:4:1: learning_rate: unknown key; use training.learning_rate"},
		{"right name, other section", least + "lora: {max_length: 3, seed: 1}\n",
			"run.yaml:4:8: lora.max_length: unknown key; use dataset.max_length\n" +
				"run.yaml:4:23: lora.seed: unknown key; it belongs at the top level"},
		{"three problems at once", least + "sed: 1\nadaptor: lora\ntraining: {batch_size: 0}\n",
			"run.yaml:4:1: sed: unknown key; the nearest is seed\n" +
				"run.yaml:5:1: adaptor: unknown key; the nearest is adapter\n" +
				"run.yaml:6:24: training.batch_size: 0 must be at least 1"},
		{"unknown tracker", least + "training: {report_to: [comet]}\n",
			"run.yaml:4:23: training.report_to: \"comet\" is not one of csv, kubeflow, mlflow, prometheus, " +
				"tensorboard, trackio, wandb, webhook"},
		{"tracker's address", least + "tracking: {mlflow_url: server}\n",
			"run.yaml:4:24: tracking.mlflow_url: is not an address such as https://host:port/path"},
		{"password in an address", least + "tracking: {webhook_url: 'https://me:pw@host/x'}\n",
			"run.yaml:4:25: tracking.webhook_url: has a user name or password in it, which would be saved with the " +
				"run; set them in the environment (docs/TRACKERS.md)"},
		{"metrics for everybody", least + "tracking: {metrics_addr: '0.0.0.0:9400'}\n",
			"run.yaml:4:26: tracking.metrics_addr: \"0.0.0.0:9400\" is not a loopback address; write 127.0.0.1:PORT, " +
				"and put a proxy before it where others must read it"},
		{"given twice", least + "seed: 1\nseed: 2\n",
			"run.yaml:5:1: seed: given twice, first in line 4"},
		{"given twice in a section", least + "training:\n  batch_size: 1\n  batch_size: 1\n",
			"run.yaml:6:3: training.batch_size: given twice, first in line 5"},
		{"a table's key twice", least + "lora: {rank_pattern: {a: 1, a: 2}}\n",
			"run.yaml:4:29: lora.rank_pattern.a: given twice, first in line 4"},
		{"text for a number", least + "training:\n  batch_size: four\n",
			"run.yaml:5:15: training.batch_size: expected a whole number, got the text \"four\""},
		{"fraction for a whole number", least + "training: {max_steps: 1.5}\n",
			"run.yaml:4:23: training.max_steps: expected a whole number, got 1.5"},
		{"exponent for a whole number", least + "training: {max_steps: 1e3}\n",
			"run.yaml:4:23: training.max_steps: expected a whole number, got 1e3"},
		{"negative seed", least + "seed: -1\n",
			"run.yaml:4:7: seed: expected a whole number, 0 or more, got -1"},
		{"no finite number", least + "training: {learning_rate: .inf}\n",
			"run.yaml:4:27: training.learning_rate: expected a number, got .inf"},
		{"number too large", least + "training: {learning_rate: 1e999}\n",
			"run.yaml:4:27: training.learning_rate: expected a number, got the text \"1e999\""},
		{"hexadecimal", least + "training: {learning_rate: 0x10}\n",
			"run.yaml:4:27: training.learning_rate: expected a number, got 0x10"},
		{"yes for true", least + "lora:\n  use_rslora: yes\n#  shuffle: yes\n",
			"run.yaml:5:15: lora.use_rslora: expected true or false, got the text \"yes\"; write true"},
		{"number for a text", "base_model: 123\ndataset: {path: d.jsonl}\noutput_dir: out\n",
			"run.yaml:1:13: base_model: expected a text, got 123; put it in quotes"},
		{"section for a value", least + "seed: {a: 1}\n",
			"run.yaml:4:7: seed: expected a whole number, 0 or more, got keys and values"},
		{"value for a section", least + "training: 3\n",
			"run.yaml:4:11: training: expected a section with keys of its own, got 3"},
		{"list for a section", least + "lora: [1]\n",
			"run.yaml:4:7: lora: expected a section with keys of its own, got a list"},
		{"list for a number", least + "training: {batch_size: [1]}\n",
			"run.yaml:4:24: training.batch_size: expected a whole number, got a list"},
		{"table for a list", least + "lora: {target_modules: {a: 1}}\n",
			"run.yaml:4:24: lora.target_modules: expected a text or a list of texts, got keys and values"},
		{"number in a list", least + "lora: {target_modules: [q_proj, 3]}\n",
			"run.yaml:4:33: lora.target_modules: expected a text, got 3; put it in quotes"},
		{"no value", least + "training:\n  batch_size:\n",
			"run.yaml:5:14: training.batch_size: has no value; expected a whole number"},
		{"list for a table", least + "lora: {rank_pattern: [1]}\n",
			"run.yaml:4:22: lora.rank_pattern: expected a table of keys and values, got a list"},
		{"wrong value in a table", least + "lora: {rank_pattern: {q_proj: much}}\n",
			"run.yaml:4:31: lora.rank_pattern.q_proj: expected a whole number, got the text \"much\""},
		{"missing keys", "seed: 1\n",
			"run.yaml: base_model: is missing; name a model folder, a hub name such as org/name, or " +
				"embedded:stories260K\n" +
				"run.yaml: output_dir: is missing; name a folder for the run, such as runs/first\n" +
				"run.yaml: dataset.path is missing: name a data file, a folder or a hub data set such as org/name, " +
				"or list dataset.sources"},
		{"empty file", "",
			"run.yaml: empty: give at least base_model, dataset.path and output_dir"},
		{"only a comment", "# nothing\n",
			"run.yaml: empty: give at least base_model, dataset.path and output_dir"},
		{"only a text", "hello\n",
			"run.yaml:1:1: not a configuration: expected keys and values such as \"seed: 42\""},
		{"a list", "- 1\n",
			"run.yaml:1:1: not a configuration: expected keys and values such as \"seed: 42\""},
		{"no YAML", "a: [1,\nb: 2\n",
			"run.yaml:2: not valid YAML: did not find expected ',' or ']'"},
		{"tab", "a:\n\tb: 1\n",
			"run.yaml:2: not valid YAML: found character that cannot start any token: a tab stands in the " +
				"indentation, which is made of spaces in YAML"},
		{"a Windows path in double quotes",
			"base_model: m\noutput_dir: out\ndataset:\n  path: \"C:\\data\\rows.jsonl\"\n",
			"run.yaml:4: not valid YAML: " + windowsPath},
		{"a Windows path on the first line", "base_model: \"D:\\users\"\n",
			"run.yaml:1: not valid YAML: " + windowsPath},
		{"a Windows path with escapes that there are",
			"base_model: m\noutput_dir: \"C:\\temp\\new\"\ndataset: {path: \"rows\\read.jsonl\"}\n",
			`run.yaml:2:13: output_dir: "C:\temp\new" has a control character (0x09), which no path has: a backslash ` +
				`in double quotes begins an escape, so write a Windows path in single quotes ('C:\new\data') or with ` +
				`slashes (C:/new/data)` + "\n" +
				`run.yaml:3:17: dataset.path: "rows\read.jsonl" has a control character (0x0d), which no path has: a ` +
				`backslash in double quotes begins an escape, so write a Windows path in single quotes ` +
				`('C:\new\data') or with slashes (C:/new/data)`},
		{"two documents", least + "---\nbase_model: m\ndataset: {path: d.jsonl}\noutput_dir: out\n",
			"run.yaml:4:1: a second document begins here: a configuration is one document"},
		{"alias", "base_model: &m x\noutput_dir: *m\n",
			"run.yaml:1:13: an anchor (&m): write the value out where it is used\n" +
				"run.yaml:2:13: an alias (*m): write the value out"},
		{"alias bomb", "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
			"run.yaml:1:4: an anchor (&a): write the value out where it is used\n" +
				"run.yaml:2:4: an anchor (&b): write the value out where it is used\n" +
				"run.yaml:2:8: an alias (*a): write the value out\n" +
				"run.yaml:2:11: an alias (*a): write the value out\n" +
				"run.yaml:3:5: an alias (*b): write the value out\n" +
				"run.yaml:3:8: an alias (*b): write the value out"},
		{"merge key", "x: &x {seed: 1}\n<<: *x\n",
			"run.yaml:1:4: an anchor (&x): write the value out where it is used\n" +
				"run.yaml:2:5: an alias (*x): write the value out"},
		{"tag", "seed: !!int '3'\n",
			"run.yaml:1:7: a tag (!!int): write the plain value"},
		{"not UTF-8", "seed: \x80\n",
			"run.yaml: not valid YAML: the file is not UTF-8 text"},
		{"key that is no name", least + "? [a]\n: 1\n",
			"run.yaml:4:3: a key must be a name"},
		{"unknown adapter", least + "adapter: dora2\n",
			"run.yaml:4:10: adapter: \"dora2\" is not one of " + strings.Join(adapter.Names(), ", ") +
				"; did you mean dora?"},
		{"LoRA on few bits", least + "adapter: lora\nquantization: {bits: 4}\n",
			"run.yaml:5:15: quantization: adapter lora keeps the base weights as they are; write adapter: qlora, or " +
				"remove the section"},
		{"unsupported bits", least + "adapter: qlora\nquantization: {bits: 3, type: nf5, block_size: 65}\n",
			"run.yaml:5:22: quantization.bits: 3 is not supported with type nf4; use 4\n" +
				"run.yaml:5:31: quantization.type: \"nf5\" is not supported; use fp4 or int8 or nf4\n" +
				"run.yaml:5:48: quantization.block_size: 65 is not supported with type nf4; use one of [64]"},
		{"8-bit GEMMs of fp16", least + "training: {precision: fp16, frozen_gemm: fp8, dequantised_weights: always}\n",
			"run.yaml:4:42: training.frozen_gemm: fp8 needs precision: auto or bf16, it is fp16\n" +
				"run.yaml:4:42: training.frozen_gemm: fp8 reads packed weights, and dequantised_weights: always " +
				"keeps none; " +
				"set it to auto or never"},
		{"unknown device", least + "device: tpu\n",
			"run.yaml:4:9: device: \"tpu\" is not one of auto, cpu, cuda"},
		{"evaluation without data", least + "training: {eval_steps: 10}\n",
			"run.yaml:4:24: training.eval_steps: there is nothing to evaluate; set dataset.val_split or " +
				"dataset.val_path"},
		{"warm-up beyond the end", least + "training: {max_steps: 10, warmup_steps: 11}\n",
			"run.yaml:4:41: training.warmup_steps: 11 are more than the run's 10 steps"},
		{"negative epochs", least + "training: {max_steps: 10, epochs: -1}\n",
			"run.yaml:4:35: training.epochs: -1 must be from 0 to 1000000"},
		{"no epochs", least + "training: {epochs: 0}\n",
			"run.yaml:4:20: training.epochs: 0 must be above 0 where max_steps is not set"},
		{"epochs without end", least + "training: {epochs: 1e9}\n",
			"run.yaml:4:20: training.epochs: 1e+09 must be from 0 to 1000000"},
		{"unknown schedule", least + "training: {lr_scheduler: cosin}\n",
			"run.yaml:4:26: training.lr_scheduler: \"cosin\" is not one of constant, constant_with_warmup, cosine, " +
				"cosine_with_min_lr, inverse_sqrt, linear, wsd; did you mean cosine?"},
		{"values out of range", least + "training:\n  learning_rate: 0\n  warmup_ratio: 2\nlora:\n  r: 0\n  dropout: " +
			"1\nexpect:\n  loss_decrease: 30\n  max_vram: lots\n",
			"run.yaml:5:18: training.learning_rate: 0 must be above 0\n" +
				"run.yaml:6:17: training.warmup_ratio: 2 must be from 0 to 1 (0.02 is 2%)\n" +
				"run.yaml:8:6: lora.r: 0 must be from 1 to 4096\n" +
				"run.yaml:9:12: lora.dropout: 1 must be at least 0 and below 1\n" +
				"run.yaml:11:18: expect.loss_decrease: 30 must be at least 0 and below 1 (0.3 is 30%)\n" +
				"run.yaml:12:13: expect.max_vram: \"lots\" is no amount of memory: write it like \"256MiB\", " +
				"\"2GiB\" or \"2GB\""},
		{"held out without data", least + "training: {eval_on_start: true}\nexpect: {eval_loss_max: 2}\n",
			"run.yaml:4:27: training.eval_on_start: there is nothing to evaluate; set dataset.val_split or " +
				"dataset.val_path\n" +
				"run.yaml:5:25: expect.eval_loss_max: there is nothing to evaluate; set dataset.val_split or " +
				"dataset.val_path"},
		{"nothing to compare with", least + "expect: {eval_loss_decrease: 0.1, reference: \"embedded:x.json\"}\n",
			"run.yaml:4:30: expect.eval_loss_decrease: there is nothing to compare with; set training.eval_on_start: " +
				"true\n" +
				"run.yaml:4:46: expect.reference: read embedded:x.json: there is no embedded reference curve " +
				"\"x.json\"; there is smollm2_convergence.json, smollm2_quick.json"},
		{"nothing embedded of that name", "base_model: embedded:m\ndataset: {path: embedded:d.jsonl}\noutput_dir: o\n",
			"run.yaml:1:13: base_model: there is no embedded model \"m\"; there is stories260K\n" +
				"run.yaml:2:17: dataset.path: there is no embedded data set \"d.jsonl\"; there is gsm8k_300.jsonl, " +
				"gsm8k_test_64.jsonl, gsm8k_train_1000.jsonl.gz"},
		{"unknown format", "base_model: m\noutput_dir: o\ndataset:\n  path: d.jsonl\n  format: alpacca\n",
			"run.yaml:5:11: dataset.format: \"alpacca\" is not one of auto, alpaca, chat_completion, " +
				"classification, completion, messages, pairs, preference, prompts, rollouts, segments, sharegpt, " +
				"text, token_classification, tokenized, tokenized_classification, tokenized_preference, " +
				"tokenized_token_classification, tokenized_unpaired, unpaired; did you mean alpaca?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := problemsOf(c.text, nil, nil); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestBrokenSources: the same for --set and the environment.
func TestBrokenSources(t *testing.T) {
	for _, c := range []struct{ source, value, want string }{
		{"set", "training.lerning_rate=1",
			"--set training.lerning_rate=1: unknown key; the nearest is training.learning_rate"},
		{"set", "lerning_rate=1", "--set lerning_rate=1: unknown key; the nearest is training.learning_rate"},
		{"set", "num_epochs=1", "--set num_epochs=1: unknown key; use training.epochs"},
		{"set", "seed.x=1", "--set seed.x=1: seed has no keys of its own"},
		{"set", "training.max_steps=ten",
			"--set training.max_steps=ten: expected a whole number, got the text \"ten\""},
		{"set", "training.max_steps=", "--set training.max_steps=: has no value; expected a whole number"},
		{"set", "training.max_steps=-1", "--set training.max_steps=-1: -1 must be at least 0"},
		{"set", "lora={r: 0, rr: 1}", "--set 'lora={r: 0, rr: 1}': lora.rr: unknown key; the nearest is " +
			"lora.r\n--set 'lora={r: 0, rr: 1}': lora.r: 0 must be from 1 to 4096"},
		{"set", "lora.target_modules=[a",
			"--set 'lora.target_modules=[a': not valid YAML: did not find expected ',' or ']'"},
		{"set", "lora.rank_pattern.a.b=x",
			"--set lora.rank_pattern.a.b=x: expected a whole number, got the text \"x\""},
		{"set", "seed", "--set seed: write --set key=value, such as --set training.max_steps=10"},
		{"set", "=1", "--set =1: a key is missing before the ="},
		{"env", "TRAINER_TRAINING_MAX_STEPS=ten",
			"TRAINER_TRAINING_MAX_STEPS: training.max_steps: expected a whole number, got the text \"ten\""},
		{"env", "TRAINER_TRAINING_LERNING_RATE=1",
			"TRAINER_TRAINING_LERNING_RATE: sets no key of training; the nearest is TRAINER_TRAINING_LEARNING_RATE"},
		{"env", "TRAINER_DATASET_SHUFFLE=no",
			"TRAINER_DATASET_SHUFFLE: dataset.shuffle: expected true or false, got the text \"no\"; write false"},
		{"env", "TRAINER_DEVICE=tpu", "TRAINER_DEVICE: device: \"tpu\" is not one of auto, cpu, cuda"},
	} {
		var environ, sets []string
		if c.source == "set" {
			sets = []string{c.value}
		} else {
			environ = []string{c.value}
		}
		if got := problemsOf(least, environ, sets); got != c.want {
			t.Errorf("%s %s\n got %s\nwant %s", c.source, c.value, got, c.want)
		}
	}
}
