package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/optimizer"
)

// What docs/CONFIG.md and the JSON schema say of a key's values. The sections' Validate decides what a run accepts; a
// test asks it about every line here.

// choices are the values of keys that have a fixed list of them.
var choices = map[string][]any{
	"adapter":                 anyOf(adapter.Names()),
	"quantization.bits":       schemeNumbers(func(s quant.Scheme) []int { return []int{s.Bits()} }),
	"quantization.type":       anyOf(quant.Names()),
	"quantization.block_size": schemeNumbers(quant.Scheme.BlockSizes),
	"dataset.format":          formats,
	"dataset.pad_to":          {dataset.PadNone, dataset.PadMaxLength},
	"dataset.as_chat":         anyOf(append([]string{""}, dataset.AsChatChoices...)),
	"dataset.train_on":        {chat.TrainAssistant, chat.TrainLast, chat.TrainAll},
	"dataset.split_turns":     {chat.SplitAuto, chat.SplitAlways, chat.SplitNever},
	"dataset.on_truncated":    {dataset.TruncatedAuto, dataset.TruncatedChunk, dataset.TruncatedKeep, dataset.TruncatedDrop, dataset.TruncatedError},
	"dataset.text_by":         anyOf(source.TextUnits),

	"dataset.sources[].format":     formats,
	"dataset.val_sources[].format": formats,

	"training.optimizer":    anyOf(sortedNames(optimizer.Optimizers)),
	"training.objective":    anyOf(sortedNames(objective.Objectives)),
	"training.report_to":    anyOf(sortedNames(train.Observers)),
	"training.on_nonfinite": {"stop", "skip"},
	"training.on_oom":       {"stop", "shrink"},
	"training.lr_scheduler": anyOf(sortedNames(train.Schedules)),
	"training.precision":    {"auto", "bf16", "fp16", "tf32", "fp32"},

	"training.gradient_checkpointing": {"auto", "none", "selective", "full", "offload"},
	"training.dequantised_weights":    {"auto", "always", "never"},
	"training.base_sharding":          {"auto", "always", "never"},
	"device":                          anyOf(graph.DeviceNames),
}

// formats are the values of every key that names one.
var formats = anyOf(append([]string{"", dataset.FormatAuto}, sortedNames(dataset.Formats)...))

// memoryPattern is what session.ParseBytes reads, or nothing.
const memoryPattern = `^([0-9]+(\.[0-9]+)? ?([KMGTkmgt][Ii]?[Bb]|[Bb])?)?$`

// What train/track takes as an address of a server, and as one to listen at, or nothing.
const (
	addressPattern  = `^(https?://[^/@]+(/.*)?)?$`
	loopbackPattern = `^((localhost|127(\.[0-9]+){3}|\[::1\]):[0-9]+)?$`
)

// devicesPattern is what `devices` takes as a text.
const devicesPattern = `^(all|[1-9][0-9]?|\[ *[0-9]+( *, *[0-9]+)* *\])?$`

// patterns are regular expressions for texts that are not free.
var patterns = map[string]string{
	"devices": devicesPattern,
	"vram":    memoryPattern, "expect.max_vram": memoryPattern,
	"tracking.mlflow_url": addressPattern, "tracking.webhook_url": addressPattern, "tracking.metrics_addr": loopbackPattern,
	"tracking.metrics_file": `^$|\.prom$`,
}

// interval bounds a number; infinite ends are not bounds.
type interval struct {
	low, high         float64
	lowOpen, highOpen bool // the bound itself is not allowed
}

var (
	aboveZero      = interval{low: 0, lowOpen: true, high: math.Inf(1)}
	zeroOrMore     = interval{low: 0, high: math.Inf(1)}
	oneOrMore      = interval{low: 1, high: math.Inf(1)}
	zeroToOne      = interval{low: 0, high: 1}
	zeroToBelowOne = interval{low: 0, high: 1, highOpen: true}
	rankLimit      = interval{low: 1, high: 4096}
	weightLimit    = interval{low: 0, lowOpen: true, high: dataset.MaxWeight}
	betaLimit      = interval{low: 0, high: 0.9999999}
)

// limits are the bounds of numbers, of a table's values where the key is a table.
var limits = map[string]interval{
	"lora.r":             rankLimit,
	"lora.alpha":         aboveZero,
	"lora.dropout":       zeroToBelowOne,
	"lora.rank_pattern":  rankLimit,
	"lora.alpha_pattern": aboveZero,

	"dataset.max_length": {low: 2, high: 1 << 20},
	"dataset.val_split":  zeroToBelowOne,

	"dataset.sources[].weight":     weightLimit,
	"dataset.val_sources[].weight": weightLimit,

	"training.max_steps":                   zeroOrMore,
	"lora.loraplus_lr_ratio":               zeroOrMore,
	"training.epochs":                      {low: 0, lowOpen: true, high: 1e6},
	"training.batch_size":                  oneOrMore,
	"training.gradient_accumulation_steps": oneOrMore,
	"training.learning_rate":               aboveZero,
	"training.warmup_ratio":                zeroToOne,
	"training.global_batch_size":           zeroOrMore,
	"training.context_parallel_size":       oneOrMore,
	"training.warmup_steps":                zeroOrMore,
	"training.min_lr_ratio":                zeroToOne,
	"training.decay_ratio":                 zeroToOne,
	"training.weight_decay":                zeroOrMore,
	"training.adam_beta1":                  betaLimit,
	"training.adam_beta2":                  betaLimit,
	"training.adam_epsilon":                aboveZero,
	"training.max_grad_norm":               zeroOrMore,
	"training.loss_scale":                  {low: 1, high: math.MaxFloat32},
	"training.loss_scale_interval":         oneOrMore,
	"training.max_skipped_steps":           zeroOrMore,
	"training.device_timeout":              zeroOrMore,
	"training.ddp_timeout":                 oneOrMore,
	"training.eval_steps":                  zeroOrMore,
	"training.evals_per_epoch":             zeroOrMore,
	"training.saves_per_epoch":             zeroOrMore,
	"training.save_steps":                  zeroOrMore,
	"training.save_total_limit":            zeroOrMore,
	"training.logging_steps":               oneOrMore,
	"training.sample_max_tokens":           oneOrMore,
	"training.grad_norm_steps":             zeroOrMore,

	"expect.loss_decrease": zeroToBelowOne,

	"expect.eval_loss_decrease": zeroToBelowOne,
	"expect.eval_loss_max":      zeroOrMore,
	"seed":                      {low: 0, high: math.MaxUint64},
}

// String is the interval in words: "above 0", "1 or more", "0 to 1", "0 or more, below 1".
func (i interval) String() string {
	low, high := formatNumber(i.low), formatNumber(i.high)
	switch {
	case !i.lowOpen && !i.highOpen && !math.IsInf(i.high, 0):
		return low + " to " + high
	case i.lowOpen:
		low = "above " + low
	default:
		low += " or more"
	}
	switch {
	case math.IsInf(i.high, 0):
		return low
	case i.highOpen:
		return low + ", below " + high
	}
	return low + ", at most " + high
}

func formatNumber(f float64) string {
	switch {
	case f == math.MaxUint64:
		return "2^64-1"
	case f == math.MaxFloat32:
		return "2^127"
	case f == math.Trunc(f) && math.Abs(f) < 1e15:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// values says in words what a key takes, "" where its type says all.
func (k *Key) values() string {
	if list, ok := choices[k.Path]; ok {
		words := make([]string, len(list))
		for i, v := range list {
			words[i] = fmt.Sprintf("`%v`", v)
			if v == "" {
				words[i] = "empty"
			}
		}
		return strings.Join(words, ", ")
	}
	if i, ok := limits[k.Path]; ok {
		return i.String()
	}
	switch patterns[k.Path] {
	case memoryPattern:
		return "an amount such as 8GiB (2^30) or 8GB (10^9)"
	case devicesPattern:
		return "1 to 64, `all`, a list such as [0, 2]"
	case addressPattern:
		return "an http or https address"
	case loopbackPattern:
		return "a loopback address with a port"
	}
	return ""
}

func sortedNames[V any](table map[string]V) []string { return slices.Sorted(maps.Keys(table)) }

func anyOf(names []string) []any {
	list := make([]any, len(names))
	for i, n := range names {
		list[i] = n
	}
	return list
}

// schemeNumbers gathers a number of every storage scheme, sorted.
func schemeNumbers(of func(quant.Scheme) []int) []any {
	var numbers []int
	for _, s := range quant.Schemes {
		numbers = append(numbers, of(s)...)
	}
	slices.Sort(numbers)
	var list []any
	for _, n := range slices.Compact(numbers) {
		list = append(list, n)
	}
	return list
}
