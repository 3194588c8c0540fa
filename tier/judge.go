package tier

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
)

const (
	// cardAside is the largest growth of the card's memory in addition to the arenas; about 550 MiB were measured.
	cardAside = 1 << 30
	// Growth of a run's memory from the first half of its steps to the second that still counts as none: the driver
	// allocates memory in pieces of 2 MiB, and the host's garbage collector waits until the heap has doubled.
	cardSlack = 16 << 20
	hostSlack = 256 << 20
)

// Differs returns the settings of a configuration that differ from the tier's; nil = none.
func (t Tier) Differs(s train.Spec) []string {
	var wrong []string
	differs := func(key string, is, want any) {
		if is != want {
			wrong = append(wrong, fmt.Sprintf("%s is %v, the tier has %v", key, is, want))
		}
	}
	differs("training.max_steps", s.Training.MaxSteps, t.Steps)
	differs("adapter", s.Adapter, t.Method)
	stored := quant.Default()
	if s.Quantization != nil {
		stored = *s.Quantization
	}
	differs("quantization.type", stored.Type, t.Quant.Type)
	differs("quantization.bits", stored.Bits, t.Quant.Bits)
	differs("quantization.block_size", stored.BlockSize, t.Quant.BlockSize)
	differs("quantization.double_quant", stored.DoubleQuant, t.Quant.DoubleQuant)
	own := s.AdapterConfig()
	differs(own.Key("r"), own.R, t.Rank)
	differs(own.Key("init_from"), own.InitFrom, "")
	differs("dataset.max_length", s.Dataset.MaxLength, t.Length)
	differs("training.save_steps", s.Training.SaveSteps, t.Saves)
	device := "cpu"
	if t.GPU {
		device = "cuda"
	}
	differs("device", s.Device, device)
	if t.Limit > 0 {
		if n, err := session.ParseBytes(s.VRAM); err != nil || n > t.Limit || n == 0 {
			wrong = append(wrong, fmt.Sprintf("vram is %q, the tier has %d bytes", s.VRAM, t.Limit))
		}
	}
	return wrong
}

// agrees checks that a configuration agrees with the tier.
func (a *attempt) agrees(s train.Spec, name string) bool {
	t := a.tier
	if wrong := t.Differs(s); wrong != nil {
		return a.check(name, false, "%s", strings.Join(wrong, "; "))
	}
	return a.check(name, true, "%d steps, %s, rank %d, at most %d tokens", t.Steps, method(t), t.Rank, t.Length)
}

// method returns a tier's method in words.
func method(t Tier) string {
	text := fmt.Sprintf("%s %s in blocks of %d", t.Method, t.Quant.Type, t.Quant.BlockSize)
	if t.Quant.DoubleQuant {
		text += ", double quantisation"
	}
	return text
}

// judge judges a run by its result and by the files it wrote, and compares the two.
func (a *attempt) judge() {
	t, r := a.tier, a.Run
	a.check("all steps", r.Steps == t.Steps && r.MaxSteps == t.Steps && r.Resumed == 0 && !r.Stopped, "%d of %d, %d tokens", r.Steps, t.Steps, r.Tokens)
	held := a.check("held bytes are the plan's", r.HeldBytes == a.Plan.TotalBytes, "%d held, %d planned", r.HeldBytes, a.Plan.TotalBytes)
	if t.Limit > 0 && held {
		a.check("held bytes are within the tier's", r.HeldBytes <= t.Limit, "%s of %s", bytesText(r.HeldBytes), bytesText(t.Limit))
	}
	for _, x := range r.Expect {
		a.check("expect."+x.Criterion, x.Met, "wanted %s, got %s", x.Want, x.Got)
	}
	if m, err := readMetrics(filepath.Join(a.run, train.MetricsFile)); err != nil {
		a.check(train.MetricsFile, false, "%v", err)
	} else {
		a.judgeMetrics(m)
	}
	a.judgeManifest()
	a.judgeAdapter()
	a.judgeCheckpoints()
	a.judgeMemory()
	a.judgeThroughput()
}

// judgeMetrics judges every step's line.
func (a *attempt) judgeMetrics(m metrics) {
	a.Steps, a.Evaluations = m.steps, m.evals
	want, r := a.tier.Steps, a.Run
	whole := len(m.steps) == want
	for i, s := range m.steps {
		whole = whole && s.Step == i+1
	}
	a.check("a loss for every step", whole, "%d lines of steps in %s, the tier runs %d", len(m.steps), train.MetricsFile, want)
	if m.broken != "" {
		a.check("every number is finite", false, "%s", m.broken)
	} else {
		a.check("every number is finite", len(m.steps) > 0, "losses, gradient norms and learning rates of %d steps, %d evaluations", len(m.steps), len(m.evals))
	}
	if len(m.steps) == 0 {
		return
	}
	first, last := m.steps[0].Loss, m.steps[len(m.steps)-1].Loss
	a.check("the result's losses are the file's", first == r.FirstLoss && last == r.LastLoss, "%v and %v, the result says %v and %v", first, last, r.FirstLoss, r.LastLoss)
	a.Loss = fall(m.steps)
	if a.tier.Fall > 0 {
		a.check("the loss falls", a.Loss.Fall >= a.tier.Fall, "%.1f%% from %.4f to %.4f, at least %.1f%%", 100*a.Loss.Fall, a.Loss.FirstTenth, a.Loss.LastTenth, 100*a.tier.Fall)
	}
	a.judgeHeldOut()
	a.judgeReference()
	gib := float64(r.HeldBytes) / (1 << 30)
	for _, held := range m.memory {
		if held != gib {
			a.check("memory of every step", false, "%s says %v GiB, the run held %v", train.MetricsFile, held, gib)
			return
		}
	}
	a.check("memory of every step", true, "%d bytes in all %d", r.HeldBytes, len(m.memory))
}

// fall returns the mean loss of the first and the last tenth of the steps, at least one step each.
func fall(steps []Step) *Loss {
	n := max(1, len(steps)/10)
	var l Loss
	for i := range n {
		l.FirstTenth += steps[i].Loss / float64(n)
		l.LastTenth += steps[len(steps)-1-i].Loss / float64(n)
	}
	if l.FirstTenth > 0 {
		l.Fall = 1 - l.LastTenth/l.FirstTenth
	}
	return &l
}

// judgeManifest compares the manifest with the configuration and the losses.
func (a *attempt) judgeManifest() {
	m, err := replay.ReadManifest(a.run)
	if err != nil {
		a.check(replay.ManifestFile, false, "%v", err)
		return
	}
	a.Manifest, a.BaseSHA256 = &m, m.Base
	if a.Base == "" {
		a.Base = plain(a.Plan.Model)
	}
	text, err := regular.ReadFile(filepath.Join(a.run, train.ConfigFile))
	if err != nil {
		a.check("the run's configuration", false, "%v", err)
		return
	}
	if a.check("the run's configuration is the manifest's", hash(text) == m.Config, "%s", m.Config) {
		a.ConfigSHA256 = hash(withoutOutput(text))
		if s, err := a.Spec(filepath.Join(a.run, train.ConfigFile), nil); err != nil {
			a.check("the run's configuration", false, "%v", err)
		} else {
			a.agrees(s, "the run did what the tier names")
		}
	}
	var losses []float64
	for _, s := range a.Steps {
		losses = append(losses, s.Loss)
	}
	chain := m.Steps == len(losses) && m.Losses == hashLosses(losses) && len(m.Evidence) > 0
	for _, e := range m.Evidence {
		chain = chain && e.Step > 0 && e.Step <= len(losses) && e.Losses == hashLosses(losses[:e.Step])
	}
	a.check("the manifest's losses are the file's", chain, "%d hashes over up to %d losses", len(m.Evidence), m.Steps)
	if m.Base == "" {
		a.check("the base model's hash", false, "%s has none", replay.ManifestFile)
	}
}

// withoutOutput returns a configuration without the line of its output folder.
func withoutOutput(config []byte) []byte {
	lines := slices.DeleteFunc(strings.Split(string(config), "\n"), func(l string) bool { return strings.HasPrefix(l, "output_dir:") })
	return []byte(strings.Join(lines, "\n"))
}

// hashLosses computes the manifest's hash of losses independently.
func hashLosses(losses []float64) string {
	raw := make([]byte, 8*len(losses))
	for i, l := range losses {
		binary.LittleEndian.PutUint64(raw[8*i:], math.Float64bits(l))
	}
	return hash(raw)
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// judgeCheckpoints reads the checkpoints that must exist.
func (a *attempt) judgeCheckpoints() {
	want := []int{a.tier.Steps}
	if a.tier.Saves > 0 && a.tier.Saves < a.tier.Steps {
		want = append(want, a.tier.Steps-a.tier.Saves)
	}
	for _, step := range want {
		dir := filepath.Join(a.run, checkpoint.Name(step))
		if _, state, err := checkpoint.Load(dir); err != nil {
			a.check(checkpoint.Name(step), false, "%v", err)
		} else {
			a.check(checkpoint.Name(step), state.GlobalStep == step, "whole, after step %d", state.GlobalStep)
		}
	}
}

// judgeMemory judges the memory of the run that the system reported.
func (a *attempt) judgeMemory() {
	m := a.Memory
	if a.tier.GPU {
		name := "the card's memory"
		if !m.CardKnown {
			a.skip(name, "it can't be read here: neither NVML nor nvidia-smi answers")
		} else {
			a.check(name, m.CardGrown >= m.Held && m.CardGrown <= m.Held+cardAside, "grew by %s, %s beside what the run holds, at most %s", bytesText(m.CardGrown), bytesText(m.CardGrown-m.Held), bytesText(cardAside))
		}
	}
	if !a.tier.Flat {
		return
	}
	a.flat("the card's memory stays", cardSlack, m.CardKnown, func(s Sample) int64 { return s.Card })
	a.flat("the host's memory stays", hostSlack, true, func(s Sample) int64 { return s.Host })
}

func (a *attempt) flat(name string, slack int64, known bool, of func(Sample) int64) {
	first, last, ok := halves(a.Memory.Samples, a.tier.Steps, of)
	if !ok || !known {
		a.skip(name, "too little was seen of it while steps ran")
		return
	}
	a.check(name, last <= first+slack, "at most %s in the first half of the steps, %s in the second", bytesText(first), bytesText(last))
}

// judgeThroughput judges the time of steps.
func (a *attempt) judgeThroughput() {
	t := a.Run.StepMs
	if t == nil {
		a.check("the time of steps", false, "the result has none")
		return
	}
	a.Throughput = &Throughput{MedianMs: t.Median, FirstTenthMs: t.FirstTenth, LastTenthMs: t.LastTenth}
	if n := len(a.Steps); n > 1 && a.Steps[n-1].Seconds > a.Steps[0].Seconds {
		a.Throughput.Tokens = float64(a.Steps[n-1].Tokens-a.Steps[0].Tokens) / (a.Steps[n-1].Seconds - a.Steps[0].Seconds)
	}
	if a.tier.Drift > 0 {
		a.check("the time of steps stays", t.LastTenth > 0 && t.LastTenth <= a.tier.Drift*t.FirstTenth, "%.2f ms in the first tenth, %.2f in the last, at most %.2f times that", t.FirstTenth, t.LastTenth, a.tier.Drift)
	}
}
