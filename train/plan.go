package train

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// PlanRun returns the planned memory of a run, exact to the byte, without allocating any.
func PlanRun(ctx context.Context, s Spec, env Env) (PlanReport, error) {
	if n, err := s.RanksAsked(); err == nil { // planOn reports the error
		env.Workers = s.workersOf(n, env)
	}
	on, err := session.OpenMachine(s.Device, s.Training.Numbers(), env.Env)
	if err != nil {
		return PlanReport{}, err
	}
	return planOn(ctx, s, env, on)
}

// PlanFor plans like PlanRun for a GPU of another machine.
func PlanFor(ctx context.Context, s Spec, env Env, chip graph.Chip) (PlanReport, error) {
	on, err := session.MachineFor(chip, s.Training.Numbers(), env.Env)
	if err != nil {
		return PlanReport{}, err
	}
	return planOn(ctx, s, env, on)
}

func planOn(ctx context.Context, s Spec, env Env, on graph.Machine) (PlanReport, error) {
	env.WithoutWeights = true
	var err error
	if env.ranks, err = s.RanksAsked(); err == nil {
		s, err = s.spread(env.ranks)
	}
	if err != nil {
		return PlanReport{}, errors.Join(err, on.Close())
	}
	p, err := prepareOn(ctx, s, env, on)
	if err != nil {
		return PlanReport{}, err
	}
	defer p.Close() //nolint:errcheck // read only
	r := p.planReport()
	r.Estimate = p.estimate()
	return r, nil
}

func (p *prepared) planReport() PlanReport {
	all, trained := p.parameters()
	batch := p.loader.Shape()
	l, need := p.found.Layout, p.found.Need
	r := PlanReport{
		Model: p.Base.Name, Device: p.On.Name(), Parameters: all, TrainedParameters: trained,
		Batch: batch.Sequences, SequenceLength: batch.T, Flat: batch.Flat, Budgets: batch.Budgets,
		Padding: 1 - p.loader.Efficiency(0), Steps: p.total, TotalBytes: need.Total(),
		Categories: withTeacher(Categories(need), p.found.Step.train.Plan.FrozenBytes(session.TeacherPrefix)),
		Precision:  p.On.Precision().String(), PrecisionAuto: p.spec.Training.Precision == session.PrecisionAuto,
		Checkpointing: l.Recompute.String(), Limit: max(p.limit, 0), Slow: p.slowPaths(),
	}
	if n := p.loader.Report().Sequence; n > 0 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("the rows are too few to fill packed sequences of max_length %d: they have %d tokens",
				p.spec.Dataset.MaxLength, n))
	}
	if p.world > 1 {
		r.Ranks = p.world
		if p.On.Capabilities().SeparateHost {
			r.Notes = append(r.Notes,
				"NCCL holds memory of its own besides, which a run takes before it looks at what is free")
		}
	}
	if g := p.found.Step.train.Plan.Gathered(step.SegmentMicro); g.Ranks > 1 {
		micro := int64(p.accumulate())
		others := int64(g.Ranks - 1)
		r.Sharding = &PlanSharding{g.Ranks, g.Slices, g.Gathers * int(micro), g.Bytes / int64(g.Ranks) * others * micro}
		r.Notes = append(r.Notes, r.Sharding.String())
	}
	if r.StateSharding = stateSharding(&p.planner); r.StateSharding != nil {
		r.Notes = append(r.Notes, r.StateSharding.String())
	}
	if n := p.spec.Training.sharing(); n > 1 {
		micro := p.accumulate()
		exchanges, received := p.found.Step.train.Plan.Exchanged(step.SegmentMicro)
		r.Context = &PlanContext{n, session.Own(p.found.Step.train.Tokens, n), p.Base.Config.NumHeads / n,
			exchanges * micro, received * int64(micro)}
		r.Notes = append(r.Notes, r.Context.String())
	}
	if p.Base.Declared {
		note := p.Base.Name + " holds no weights: their names and shapes follow from its config.json"
		if stored := p.Base.StoredAs(); stored != "" {
			note += ", which says that " + stored
		}
		r.Notes = append(r.Notes, note)
	}
	if note := p.samplingNote(); note != "" {
		r.Notes = append(r.Notes, note)
	}
	if p.noted != "" {
		r.Notes = append(r.Notes, p.noted)
	}
	for _, note := range []string{noteOnReference(&p.planner), noteOnTeacher(&p.planner)} {
		if note != "" {
			r.Notes = append(r.Notes, note)
		}
	}
	r.Notes = append(r.Notes, p.notesOnRewardModels()...)
	r.Notes = append(r.Notes, p.notesOnPEFT()...)
	for _, g := range p.found.Step.train.Groups {
		r.Notes = append(r.Notes, groupNote(g, p.spec.Training.LearningRate))
	}
	for _, t := range p.found.Rejected {
		r.Tried = append(r.Tried, PlanTried{t.Layout.String(), t.Need.Total()})
	}
	if l.LossRows > 0 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("the loss is worked out for %d rows at a time, as more of the logits do not fit; rounding "+
				"may differ from a run with more", l.LossRows))
	}
	if l.Layers > 0 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("gradient_checkpointing %v holds for the first %d of %d layers, %v for the others", l.Recompute,
				l.Layers, p.Base.Config.NumLayers, l.Rest))
	}
	if l.Dequantised {
		which := "quantised weights"
		if n := l.Linears; n > 0 {
			which = fmt.Sprintf("the quantised weights of the first %d of %d linear layers", n,
				len(p.found.Step.train.Net.Quantised()))
		}
		r.Notes = append(r.Notes,
			which+" are kept dequantised, for speed; dequantised_weights: never keeps them packed")
	}
	switch {
	case p.Net.Images != nil:
		r.Notes = append(r.Notes, "rows have images: the frozen image tower computed their embeddings on the CPU, and "+
			"batches hold these")
	case p.Base.Config.Multimodal:
		r.Notes = append(r.Notes, "the model's tensors for images are left out: its language model alone is trained")
	}
	if own := p.Base.Config.Unapplied; own != nil {
		r.Notes = append(r.Notes,
			fmt.Sprintf("the base model's config.json has %s: the base model's own dropout is not applied here; "+
				"lora.dropout is the adapter's", strings.Join(own, " and ")))
	}
	if need.Host > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s of host memory hold %s until the backward pass",
			session.FormatBytes(need.Host), offloadedText(l.Recompute)))
	}
	if n := need.Offloaded(); n > 0 {
		r.OffloadedBytes = n
		r.Notes = append(r.Notes, fmt.Sprintf("optimizer_offload: %s of page-locked host memory (%d bytes) hold the "+
			"optimizer's states, which each update reads and writes over the device's link", session.FormatBytes(n), n))
	}
	return r
}

// offloadedText names the values that a mode copies to host memory.
func offloadedText(mode graph.Recompute) string {
	if mode == graph.OffloadAttention {
		return "the layers' inputs and the outputs of their attention"
	}
	return "the layers' inputs"
}

// notesOnPEFT returns which parts of the adapter PEFT does not load as trained, and the export that it does load.
func (p *prepared) notesOnPEFT() []string {
	_, notes := p.spec.AdapterConfig().ForPEFT(p.found.Step.train.Trained, p.Net.Mixture())
	return notes
}

// Rates of links in bytes per second and direction, which plans estimate times with: NVLink of an H100 or H200, and a
// card's PCIe slot.
const (
	rateNVLink = 450e9
	ratePCIe4  = 25e9 // 16 lanes, as measured; nominal 31.5e9
)

// String describes what each device stores and what its link transfers.
func (s PlanSharding) String() string {
	return fmt.Sprintf("base_sharding: each of %d devices holds %s of the base model and receives %s of it a step "+
		"from the others, in %d all-gathers beside the GEMMs: %s",
		s.Devices, session.FormatBytes(s.SliceBytes), session.FormatBytes(s.ReceivedBytes), s.Gathers,
		onLinks(s.ReceivedBytes))
}

// String describes what each device stores and what its link transfers.
func (s PlanStates) String() string {
	return fmt.Sprintf("optimizer_sharding: each of %d devices holds %s of the optimizer's states (%d bytes; whole "+
		"they are %s) and receives %s of updated weights a step from the others: %s", s.Devices,
		session.FormatBytes(s.SliceBytes), s.SliceBytes, session.FormatBytes(s.WholeBytes),
		session.FormatBytes(s.ReceivedBytes), onLinks(s.ReceivedBytes))
}

// String describes what each device computes and what its link transfers.
func (c PlanContext) String() string {
	return fmt.Sprintf("context_parallel_size: each of %d devices has %d tokens of a micro-batch, and %s of "+
		"attention over all of them; it receives %s a step from the others, in %d all-to-alls between the GEMMs: %s",
		c.Devices, c.Tokens, count(c.Heads, "head"), session.FormatBytes(c.ReceivedBytes), c.Exchanges,
		onLinks(c.ReceivedBytes))
}

// onLinks returns how long the links take to transfer bytes.
func onLinks(bytes int64) string {
	at := func(rate float64) string {
		if t := float64(bytes) / rate; t >= 0.01 {
			return fmt.Sprintf("%.2f s", t)
		}
		return "less than 0.01 s"
	}
	return fmt.Sprintf("%s at 450 GB/s (NVLink), %s at 25 GB/s (PCIe 4.0 x16)", at(rateNVLink), at(ratePCIe4))
}

// parameters returns the number of all parameters of a network and of the trained ones.
func (p *prepared) parameters() (all, trained int64) {
	step := p.found.Step.train
	counted := map[string]bool{"": true}
	for _, w := range step.Net.Weights() {
		n := int64(1)
		for _, d := range w.Shape {
			n *= int64(d)
		}
		if !counted[w.Name] { // an untied head has the embeddings' name too
			counted[w.Name] = true
			all += n
		}
	}
	trained = step.Trained.Numbers()
	if p.whole() { // they are the model's own
		return all, trained
	}
	return all + trained, trained
}

// withTeacher lists the frozen weights of a teacher apart from those of the model.
func withTeacher(all []PlanCategory, bytes int64) []PlanCategory {
	if bytes == 0 {
		return all
	}
	own := all[0]
	own.Bytes -= bytes
	return append([]PlanCategory{own, {"teacher", bytes}}, all[1:]...)
}

// Categories returns the kinds of planned memory in a fixed order.
func Categories(b graph.Bytes) []PlanCategory {
	c := []PlanCategory{{"frozen weights", b.Frozen}, {"activations", b.Arena}, {"batch", b.Batch}}
	for _, g := range b.Groups() {
		c = append(c, PlanCategory{g, b.State[g]})
	}
	return c
}
