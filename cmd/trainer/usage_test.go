package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/golden"
)

// wrongUse has command lines that can't be right, one a line: each ends with exit code 2, in a sentence, and leaves no
// file behind. STORIES is a model, RUN a run's folder.
const wrongUse = `
init
init --model STORIES
init --data x
init --model STORIES --data nothing.jsonl
init --model embedded:none --data embedded:gsm8k_300.jsonl
init --model STORIES --data embedded:gsm8k_300.jsonl --goal nonsense
init --model STORIES --data embedded:gsm8k_300.jsonl --format nonsense
init --model STORIES --data embedded:gsm8k_300.jsonl --fields nonsense=question
init --model STORIES --data embedded:gsm8k_300.jsonl --as-chat perhaps
init --model STORIES --data embedded:gsm8k_300.jsonl --as-chat no --system nonsense
init --model STORIES --data embedded:gsm8k_300.jsonl --device gpu
init --model STORIES --data embedded:gsm8k_300.jsonl --gpu 9999x
init --model STORIES --data embedded:gsm8k_300.jsonl --vram lots
init --model STORIES --data embedded:gsm8k_300.jsonl --out a.txt
init --model STORIES --data embedded:gsm8k_300.jsonl --out no/such/folder/a.yaml
logprobs
logprobs --config nothing.yaml
logprobs --model STORIES
logprobs --model STORIES --data nothing.jsonl --out a
logprobs --model STORIES --data embedded:gsm8k_300.jsonl --out RUN
logprobs --model STORIES --data embedded:gsm8k_300.jsonl --out a --adapter nowhere
logprobs --model STORIES --data embedded:gsm8k_300.jsonl --out a --quantization nonsense
logprobs --model STORIES --data embedded:gsm8k_300.jsonl --out a --set x
logprobs --model STORIES --data embedded:gsm8k_300.jsonl --out a --temperature -1
logprobs --model STORIES --data embedded:gsm8k_300.jsonl --out a --top-k 0
logprobs --model STORIES --data embedded:gsm8k_300.jsonl --out a --vram lots
logprobs --model STORIES --data embedded:gsm8k_300.jsonl --out a --workers -1
predict
predict --model STORIES
predict --model STORIES --data nothing.jsonl --pooling mean
predict --model STORIES --text a --pooling max
predict --model STORIES --text a --data x --pooling mean
predict --model STORIES --text a --fields text=b --pooling mean
predict --model STORIES --text a --pooling mean --json
predict --model STORIES --text a --pooling mean --max-length -1
predict --model STORIES --text a --pooling mean --out RUN/config.yaml
predict --model STORIES --text a --pooling mean --out no/such/folder/a.jsonl
predict --model STORIES --text a --pooling mean --quantization nonsense
predict --model STORIES --text a --pooling mean --workers -1
predict --model STORIES --data embedded:gsm8k_300.jsonl --split x --pooling mean
predict --model STORIES --data embedded:gsm8k_300.jsonl --keep a,,b --pooling mean
predict --model STORIES --text a --pooling mean --device gpu
predict --adapter nowhere --text a
train
train nothing.yaml
train --config nothing.yaml
train cpu_stories_quick more
train cpu_stories_quick --devices x
train cpu_stories_quick --devices 0,0
train cpu_stories_quick --vram lots
train cpu_stories_quick --resume nowhere
train cpu_stories_quick --workers -1
train cpu_stories_quick --set training.max_step=1
train cpu_stories_quick --set x
train cpu_stories_quick --tui --quiet
--config nothing.yaml
cpu_stories_quick.yaml --devices x
cpu_stories_quick.yaml --vram lots
cpu_stories_quick.yaml --resume nowhere
cpu_stories_quick.yaml --workers -1
cpu_stories_quick.yaml --set x
launch --nproc 2
launch --nproc 0 cpu_stories_quick
launch --nproc -1 cpu_stories_quick
launch --nproc 2 --grace -1 cpu_stories_quick
launch --nproc 2 --devices 0,0 cpu_stories_quick
launch --nproc 2 eval cpu_stories_quick
launch --nproc 2 nothing.yaml
launch --nproc 2 cpu_stories_quick --set nokey=1
sweep
sweep nothing.yaml
sweep --config nothing.yaml
sweep cpu_stories_quick --seeds 0
sweep cpu_stories_quick --parallel 0
sweep cpu_stories_quick --sample -1
sweep cpu_stories_quick --sample-seed -1
sweep cpu_stories_quick --set lora.rr=1,2
sweep cpu_stories_quick --set lora.r=a,2
sweep cpu_stories_quick --vram lots
sweep cpu_stories_quick --set lora.r=8,16 --out RUN/config.yaml
validate
validate nothing.yaml
validate --config nothing.yaml
validate cpu_stories_quick --vram lots
validate cpu_stories_quick --set seed=x
plan
plan --config nothing.yaml
plan cpu_stories_quick --gpu nothing
plan cpu_stories_quick --devices x
plan cpu_stories_quick --vram lots
plan cpu_stories_quick --price -1
plan cpu_stories_quick --set seed=x
bench
bench nothing.yaml
bench --config nothing.yaml
bench cpu_stories_quick --shape smollm2-135m
bench cpu_stories_quick --set a=1
bench cpu_stories_quick --device gpu
bench cpu_stories_quick --compare nothing.json
bench cpu_stories_quick --trace .
bench cpu_stories_quick --trace no/such/folder/t.json
bench cpu_stories_quick --workers -1
bench --shape none
bench --shape smollm2-135m --batch 0
bench --shape smollm2-135m --batch 1000000000
bench --shape smollm2-135m --length 0
bench --shape smollm2-135m --length 100000
bench --shape smollm2-135m --r 0
bench --shape smollm2-135m --steps 0
bench --shape smollm2-135m --warmup -1
bench --shape smollm2-135m --context-parallel 0
bench --shape smollm2-135m --device gpu
bench --shape smollm2-135m --precision bf17
bench --shape smollm2-135m --frozen-gemm fp9
bench --shape smollm2-135m --checkpointing some
bench --shape smollm2-135m --base-sharding some
bench --shape smollm2-135m --context-parallel 0
bench --shape smollm2-135m --gpu none
bench --shape smollm2-135m --vram lots
bench --shape smollm2-135m --context-parallel 0
bench --shape smollm2-135m --devices x
bench --shape smollm2-135m --target-parameters experts.down_proj,experts.down_proj
bench --shape smollm2-135m --slots 2
bench --shape smollm2-135m --decode --slots 0
bench --shape smollm2-135m --decode --by-type
inspect tokens
inspect tokens --tokenizer embedded:none hello
inspect tokens --tokenizer STORIES
inspect tokens --tokenizer STORIES --text-file nothing.txt
inspect data
inspect data --config nothing.yaml
inspect data cpu_stories_quick --first -1
inspect data cpu_stories_quick --first 100000
inspect data cpu_stories_quick --rows 0
inspect data cpu_stories_quick --html .
inspect data cpu_stories_quick --html no/such/folder/f.html
inspect data cpu_stories_quick --set a=1
inspect data cpu_stories_quick --vram lots
inspect steps --config nothing.yaml
inspect steps cpu_stories_quick --set a=1
inspect steps cpu_stories_quick --vram lots
inspect model
inspect model embedded:none
inspect model --model embedded:none
inspect model STORIES --model STORIES
inspect template
inspect template --file nothing.jinja
inspect template --model embedded:none
inspect template --model STORIES --now yesterday
inspect template --model STORIES --conversations nothing.json
inspect image
inspect image nothing.png
inspect image nothing.png --model STORIES
inspect image nothing.png --model embedded:none
eval
eval --config nothing.yaml
eval cpu_stories_quick --adapter nothing
eval cpu_stories_quick --data nothing.jsonl
eval cpu_stories_quick --split nothing
eval cpu_stories_quick --by nothing
eval cpu_stories_quick --set a=1
eval cpu_stories_quick --vram lots
eval cpu_stories_quick --workers -1
eval --model STORIES
eval --model STORIES --task nothing
eval --model STORIES --task gsm8k --few-shot -1
eval --model STORIES --task gsm8k --limit -1
eval --model STORIES --task gsm8k --device gpu
eval --model STORIES --task gsm8k --answers .
eval --model STORIES --task gsm8k --answers no/such/folder/a.jsonl
eval --model STORIES --task gsm8k --compare-base
generate
generate --model STORIES --image nothing.png --prompt x
generate --model embedded:none --prompt x
generate --model STORIES --prompt x --adapter nothing
generate --model STORIES --prompt x --max-tokens 0
generate --model STORIES --prompt x --max-tokens 99999
generate --model STORIES --prompt x --temperature -1
generate --model STORIES --prompt x --temperature nan
generate --model STORIES --prompt x --top-p 2
generate --model STORIES --prompt x --top-k -1
generate --model STORIES --prompt x --min-p 2
generate --model STORIES --prompt x --repetition-penalty 0
generate --model STORIES --prompt x --frequency-penalty inf
generate --model STORIES --prompt x --presence-penalty nan
generate --model STORIES --prompt x --quantize none
generate --model STORIES --prompt x --quantization none
generate --model STORIES --prompt x --device gpu
generate --model STORIES --prompt x --seed -1
generate --model STORIES --prompt x --workers -1
generate --model STORIES --prompt x --stop=
generate --model STORIES --prompt x --chat --chat-template nothing
generate --model STORIES --prompt x --chat --chat-template chatml --chat-template-kwargs [1]
generate --model STORIES --messages nothing.json
generate --model STORIES --prompt x --json-schema nothing.json
chat
chat --model embedded:none
chat --model STORIES --adapter nothing
chat --model STORIES --chat-template nothing
chat --model STORIES --chat-template chatml --device gpu
chat --model STORIES --chat-template chatml --max-length -1
chat --model STORIES --chat-template chatml --max-length 999999
chat --model STORIES --chat-template chatml --max-tokens 0
chat --model STORIES --chat-template chatml --quantization none
chat --model STORIES --chat-template chatml --temperature -1
chat --model STORIES --chat-template chatml --top-p 2
chat --model STORIES --chat-template chatml --top-k -1
chat --model STORIES --chat-template chatml --seed -1
chat --model STORIES --chat-template chatml --workers -1
chat --model STORIES --chat-template chatml --adapter-only
serve
serve --model embedded:none --port 0
serve --model STORIES --port 99999
serve --model STORIES --port 0 --host nowhere.invalid
serve --model STORIES --port 0 --slots -1
serve --model STORIES --port 0 --queue -1
serve --model STORIES --port 0 --timeout -1s
serve --model STORIES --port 0 --grace -1s
serve --model STORIES --port 0 --max-length 999999
serve --model STORIES --port 0 --quantization none
serve --model STORIES --port 0 --device gpu
serve --model STORIES --port 0 --chat-template nothing
serve --model STORIES --port 0 --adapter nothing
serve --model STORIES --port 0 --allow-origin nonsense
serve --model STORIES --port 0 --api-key=
serve --model STORIES --port 0 --workers -1
serve --model STORIES --port 0 --pooling first
serve --model STORIES --port 0 --adapter-only
merge
merge --adapter nothing --out o
merge --model embedded:none --adapter RUN --out o
merge --model STORIES --adapter RUN
merge --model STORIES --adapter RUN=x --out o
merge --model STORIES --adapter RUN --out o --dtype fp8
merge --model STORIES --adapter RUN --out o --base none
merge --model STORIES --adapter RUN --out o --combination none
merge --model STORIES --adapter RUN --out o --shard-size lots
merge --model STORIES --adapter RUN --out o --check-text nothing.txt
merge --model STORIES --adapter RUN --out o --own-rows -1
export --format gguf --model STORIES --adapter RUN --out o.gguf --check-text nothing.txt
export --format gguf --model STORIES --adapter RUN --out o.gguf --own-rows -1
merge --model STORIES --adapter RUN --out o --workers -1
export
export --format none --model STORIES --out o.gguf
export --format gguf --model embedded:none --out o.gguf
export --format gguf --model STORIES
export --format gguf --model STORIES --dtype f64 --out o.gguf
export --format gguf --model STORIES --out no/such/folder/o.gguf
export --format gguf-lora --adapter nothing --out o.gguf
export --format gguf-lora --model STORIES --adapter RUN --out o.gguf --base original
export --format gguf --model STORIES --adapter RUN --out o.gguf --base none
export --format gguf --model STORIES --out o.gguf --workers -1
push
push nothing --repo a/b
push RUN
push RUN --repo a
push RUN --repo a/b/c
push RUN --repo a/b --run nothing
download
download a@
download a/b/c
download a/b --include [
download a/b@../x
configs x
configs write
configs write nothing
import
import nothing.yaml
import RUN/metrics.jsonl
import RUN/config.yaml --from none
import RUN/adapter_config.json --out RUN/config.yaml
import RUN/adapter_config.json --out no/such/folder/c.yaml
config-schema x
verify
verify nothing
verify RUN --steps 0
verify RUN --device gpu
verify RUN --workers -1
gradcheck
gradcheck --config nothing.yaml
gradcheck cpu_stories_quick --layers -1
gradcheck cpu_stories_quick --layers 99
gradcheck cpu_stories_quick --tokens 1
gradcheck cpu_stories_quick --show -1
gradcheck cpu_stories_quick --set a=1
gradcheck cpu_stories_quick --vram lots
gradcheck cpu_stories_quick --workers -1
lr-find
lr-find --config nothing.yaml
lr-find cpu_stories_quick --from 0
lr-find cpu_stories_quick --to 1e-7
lr-find cpu_stories_quick --steps 1
lr-find cpu_stories_quick --out chart.png
lr-find cpu_stories_quick --out no/such/folder/chart.html
lr-find cpu_stories_quick --set a=1
lr-find cpu_stories_quick --vram lots
lr-find cpu_stories_quick --workers -1
report
report nothing
report RUN --out .
report RUN --out no/such/folder/r.html
report RUN --out r.pdf
ui nothing
ui --port -1
ui --port 0 --host nowhere.invalid
ui --port 0 --queue RUN/config.yaml
ui . --most-data nonsense
ui . --most-data -1
ui . --data /dev/null/x
doctor x
doctor --emit-json .
doctor --emit-json no/such/folder/d.json
doctor --fail-on-mismatch nothing.json
doctor --refresh-pins
doctor --refresh-pins --fail-on-mismatch no/such/folder/p.json
selfcheck x
selfcheck --workers -1
tier
tier none
tier quick none
tier quick --list
tier quick --base 9b=x
tier cpu_stories_quick --base x
tier cpu_stories_quick --set x
tier cpu_stories_quick --set trainng.x=1
tier cpu_stories_quick --set training.max_steps=many
tier cpu_stories_quick --compare nothing
tier cpu_stories_quick --time-limit -1s
tier cpu_stories_quick --report RUN/config.yaml
man nothing
man --dir RUN/config.yaml
man train --dir x
version x
completion tcsh
completion bash x
`

// rightUse has flags whose every value may be right, by command: texts, and names that another machine knows.
var rightUse = map[string]string{
	"chat": "system", "generate": "prompt system instruction input", "inspect template": "bos eos",
	"serve": "served-model-name system",
	"push":  "base-model license message", "report": "title", "bench": "targets", "download": "out",
}

// TestUsage: one rule for all commands and all flags that take a value. A command line that can't be right ends with
// exit code 2 and makes nothing; every such flag has a line above.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv(asProgram, "1") // of the processes that launch starts
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_TOKEN", "")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	folder := t.TempDir()
	if code := run(append(small[:len(small):len(small)], "--quiet", "--set", "output_dir="+folder+"/run"),
		strings.NewReader(""), new(bytes.Buffer), new(bytes.Buffer)); code != 0 {
		t.Fatalf("the run ends with %d", code)
	}
	words := strings.NewReplacer("RUN", folder+"/run", "STORIES", "embedded:stories260K")
	for line := range strings.Lines(strings.TrimSpace(wrongUse)) {
		line = strings.TrimSpace(line)
		t.Run(line, func(t *testing.T) {
			var out, errOut bytes.Buffer
			ended := make(chan int, 1)
			go func() { ended <- run(strings.Fields(words.Replace(line)), strings.NewReader(""), &out, &errOut) }()
			select {
			case code := <-ended:
				if code != exitUsage || !strings.Contains(errOut.String(), "trainer: ") {
					t.Errorf("exit code %d, %q", code, errOut.String())
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("it runs")
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Fatal("it left", left, err)
			}
		})
	}
	eachCommand(newRoot(&console{}), func(cmd *cobra.Command) {
		if !cmd.Runnable() || cmd.Hidden || strings.HasPrefix(cmd.CommandPath(), "trainer completion") {
			return
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "trainer ")
		if cmd.HasSubCommands() && cmd.HasParent() && !strings.Contains(wrongUse, "\n"+name+" ") {
			return
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" || f.Hidden || strings.Contains(" "+rightUse[name]+" ", " "+f.Name+" ") {
				return
			}
			for line := range strings.Lines(wrongUse) {
				if (name == "trainer" && (strings.HasPrefix(line, "--") || strings.HasPrefix(line, "cpu_")) ||
					strings.HasPrefix(line, name+" ")) &&
					(strings.Contains(line, " --"+f.Name) || strings.HasPrefix(line, "--"+f.Name)) {
					return
				}
			}
			t.Errorf("%s --%s: no line of wrongUse has a value that can't be right", name, f.Name)
		})
	})
}

// TestQuiet: --quiet says nothing of data, plan and steps, but how many rows are lost, and the result.
func TestQuiet(t *testing.T) {
	dir := t.TempDir()
	args := append(small[:len(small):len(small)], "--set", "output_dir="+dir+"/run", "--quiet")
	code, out, errOut := trainer(t, dir, nil, "", args...)
	if code != 0 || errOut != "data: of 300 rows 299 dropped, 1 cut at max_length\n" ||
		!strings.HasPrefix(out, "steps    3 of 3\n") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if code, _, errOut = trainer(t, dir, nil, "", append(args, "--resume", "auto", "--set", "training.max_steps=4",
		"--set", "dataset.max_length=47")...); code != 1 || !strings.Contains(errOut, "trainer: resume from ") {
		t.Errorf("what is wrong is said all the same: exit code %d, %q", code, errOut)
	}
}

func eachCommand(cmd *cobra.Command, see func(*cobra.Command)) {
	see(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, see)
	}
}

var (
	namedFlag = regexp.MustCompile(`(?:^|[ (])--([a-z][a-z-]*)`)
	otherTool = regexp.MustCompile("`(?:hf|git) [^`]*`|trackio show --project")
)

// TestMessagesNameFlags: every flag that some text of the program names can be given.
func TestMessagesNameFlags(t *testing.T) {
	flags := map[string]bool{"help": true}
	eachCommand(newRoot(&console{}), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
	})
	count := 0
	check := func(where, text string) {
		for _, m := range namedFlag.FindAllStringSubmatch(otherTool.ReplaceAllString(text, ""), -1) {
			if !flags[m[1]] {
				t.Errorf("%s names the flag --%s, which no command has: %q", where, m[1], text)
			}
			count++
		}
	}
	for name, c := range importer.Keys() {
		check(name, c.Say)
	}
	golden.EachString(t, check, "cmd/trainer", "config", "train", "dataset", "adapter", "quant", "model", "graph")
	if count < 100 {
		t.Errorf("only %d flags seen", count)
	}
}
