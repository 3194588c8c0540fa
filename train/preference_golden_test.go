package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// preferenceGolden is what TRL computed of one batch: the loss, the logged numbers and digests of the gradients, a
// tensor's norm and its product with cos(0.1 i).
type preferenceGolden struct {
	Args    map[string]any `json:"args"`
	Adapter string         `json:"adapter"`
	// Policy and Reference stand for Adapter where the reference is an adapter too.
	Policy    string
	Reference string
	Loss      float64               `json:"loss_f64"`
	Metrics   map[string]float64    `json:"metrics_f64"`
	Grads     map[string][2]float64 `json:"grads"`
}

// preferenceGoldens returns TRL's numbers of one of its trainers, by variant. Mean logits of CPO and ORPO are the
// numbers that TRL's DPO logs of the same rows: its CPO and ORPO average over prompts and padding too.
func preferenceGoldens(t *testing.T, trainer string) map[string]preferenceGolden {
	t.Helper()
	var all map[string]preferenceGolden
	golden.JSON(t, golden.Path(t, "preferences/pref.json"), &all)
	own := map[string]preferenceGolden{}
	for name, g := range all {
		if variant, ok := strings.CutPrefix(name, trainer+"/"); ok {
			own[variant] = g
			for _, name := range []string{"logits/chosen", "logits/rejected"} {
				if trainer == "cpo" || trainer == "orpo" {
					g.Metrics[name] = all["dpo/sigmoid"].Metrics[name]
				}
			}
		}
	}
	return own
}

// setTRL sets the fields of a section by TRL's argument names.
func setTRL(t *testing.T, section any, args map[string]any) {
	t.Helper()
	keys.SetDefaults(section)
	set := map[string]bool{}
	setFields(reflect.ValueOf(section).Elem(), args, set)
	if len(set) != len(args) {
		t.Fatalf("of the arguments %v the section has %v", args, set)
	}
}

// setFields sets the fields of a section, and of those inlined into it, and notes their keys.
func setFields(v reflect.Value, args map[string]any, set map[string]bool) {
	for i := range v.NumField() {
		if keys.Inline(v.Type().Field(i)) {
			setFields(v.Field(i), args, set)
			continue
		}
		k, ok := keys.Of(v.Type(), i)
		arg, given := args[k.Name]
		if !ok || !given {
			continue
		}
		set[k.Name] = true
		if list, ok := arg.([]any); ok {
			var texts []string
			for _, x := range list {
				texts = append(texts, fmt.Sprint(x))
			}
			v.Field(i).Set(reflect.ValueOf(texts))
			continue
		}
		v.Field(i).Set(reflect.ValueOf(arg))
	}
}

// pairBatch lays pairs of rows end to end: the chosen answer, then the rejected.
func pairBatch(rows [][2][2][]int32) (b dataset.Batch) {
	b.CuSeqlens, b.Groups = []int32{0}, []int32{0}
	for k, pair := range rows {
		b.Rows, b.Starts = append(b.Rows, k), append(b.Starts, len(b.IDs))
		for _, side := range pair {
			ids, labels := side[0], side[1]
			b.IDs, b.Labels = append(b.IDs, ids...), append(b.Labels, labels...)
			for i := range ids {
				b.Positions = append(b.Positions, int32(i))
			}
			b.Segments = append(b.Segments, int32(len(b.CuSeqlens)-1))
			b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
		}
		b.Groups = append(b.Groups, int32(len(b.Segments)))
	}
	return b
}

// goldenPairs are the four pairs of the batch of goldens as a trainer tokenised them.
func goldenPairs(t *testing.T, trainer string) dataset.Batch {
	t.Helper()
	file := golden.Open(t, golden.Path(t, "preferences/batches.safetensors"))
	ids, mask, labels := file.Ints(trainer+".input_ids"), file.Ints(trainer+".attention_mask"), file.Ints(trainer+".labels")
	T := file.Shape(trainer + ".input_ids")[1]
	row := func(r int) [2][]int32 {
		n := 0
		for _, m := range mask[r*T : (r+1)*T] {
			n += int(m)
		}
		return [2][]int32{ids[r*T:][:n], labels[r*T:][:n]}
	}
	var rows [][2][2][]int32
	for k := range 4 {
		rows = append(rows, [2][2][]int32{row(k), row(k + 4)})
	}
	return pairBatch(rows)
}

// preferenceStep is a training step of an objective, whose batches its Filler writes.
type preferenceStep struct {
	*testStep
	batch *session.Batch
	data  objective.Filler
	// by is what the gradients are still divided by, where a scale in fp32 would be too coarse; 0 = nothing.
	by float64
}

func newPreferenceStep(t *testing.T, b *session.Base, float kernel.DType, o objective.Objective, tokens, sequences int, c Config, adapterDir string) *preferenceStep {
	t.Helper()
	shape := session.Shape{Tokens: tokens, Sequences: sequences, MaxLen: 512}
	return newStepOfPairs(t, b, float, o, shape, c, adapterDir)
}

// roomFor returns a shape with room for a batch and padding.
func roomFor(b dataset.Batch) session.Shape {
	return session.Shape{Tokens: len(b.IDs) + 5, Sequences: len(b.CuSeqlens) + 1, MaxLen: 256,
		Prefixes: b.Prefixes != nil}
}

// newStepOfPairs is newPreferenceStep for batches of a shape. reference is the folder of the reference's adapter; none =
// the base model is the reference.
func newStepOfPairs(
	t *testing.T, b *session.Base, float kernel.DType, o objective.Objective, shape session.Shape, c Config,
	adapterDir string, reference ...string,
) *preferenceStep {
	t.Helper()
	cfg := peftConfigOf(t, adapterDir)
	on := graph.NewCPU(2)
	nw := network(t, b, float, nil, &cfg)
	var err error
	for _, dir := range reference {
		if nw.Reference, err = adapter.OpenReference(dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nw.Reference.Close() })
	}
	planned, err := step.Plan(nw, shape, c.Step(o), step.Summing{}, on)
	if err != nil {
		t.Fatal(err)
	}
	s := &preferenceStep{testStep: bound(t, on, b, planned, c, adapterDir)}
	if s.batch, err = session.BindBatch(s.memory, ""); err != nil {
		t.Fatal(err)
	}
	if s.data, err = o.Bind(s.batch); err != nil {
		t.Fatal(err)
	}
	if nw.Reference != nil {
		if _, err := nw.Reference.Fill(planned.Trained, s.memory); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// micro runs forward and backward of a micro-batch, whose loss is divided by a count.
func (s *preferenceStep) micro(t *testing.T, b dataset.Batch, count int) {
	t.Helper()
	for len(b.IDs) < s.Tokens { // padding, in a segment of its own
		b.IDs, b.Labels, b.Positions = append(b.IDs, 0), append(b.Labels, dataset.Ignore), append(b.Positions, 0)
	}
	for cu := s.batch.Cu; len(b.CuSeqlens) < len(cu); {
		b.CuSeqlens = append(b.CuSeqlens, int32(s.Tokens))
	}
	s.batch.Fill(b, session.Part{})
	s.data.Fill(b, session.Part{})
	s.data.Scale(1 / float32(count))
	if err := s.batch.Put(); err != nil {
		t.Fatal(err)
	}
	if err := s.run.Run(step.SegmentMicro); err != nil {
		t.Fatal(err)
	}
}

// numbersOf returns the means of the objective's numbers over the step.
func (s *preferenceStep) numbersOf(t *testing.T, o objective.Objective, over objective.Counts) map[string]float64 {
	t.Helper()
	var sums []float64
	for _, n := range o.Numbers() {
		if n.Summed() {
			x, err := s.memory.Tensor("sum of " + n.Name)
			if err != nil {
				t.Fatal(err)
			}
			sums = append(sums, numbers(x)[0])
		}
	}
	all := map[string]float64{}
	for _, v := range objective.Values(o.Numbers(), s.read(t, s.Loss)[0], sums, over) {
		all[v.Name] = v.Value
	}
	return all
}

// sameGradients compares with digests, and where TRAINER_DATA has the set with whole gradients.
func (s *preferenceStep) sameGradients(t *testing.T, trainer, variant string, want map[string][2]float64, tolerance float64) {
	t.Helper()
	file := filepath.Join(os.Getenv("TRAINER_DATA"), "goldens/methods/pref", trainer, variant+".grads.safetensors")
	s.sameGradientsAs(t, file, want, tolerance)
}

// sameGradientsAs compares with digests, and with the whole gradients of a file where it exists.
func (s *preferenceStep) sameGradientsAs(t *testing.T, file string, want map[string][2]float64, tolerance float64) {
	t.Helper()
	if len(want) != len(s.Trained.Params) {
		t.Errorf("%d gradients, want %d", len(s.Trained.Params), len(want))
	}
	var whole golden.Tensors
	_, err := os.Stat(file)
	if err == nil {
		whole = golden.Open(t, file)
	}
	for _, p := range s.Trained.Params {
		x, e := s.memory.Tensor("gradient of " + p.Name)
		if e != nil {
			t.Fatal(e)
		}
		name, got := "base_model.model."+p.Name, numbers(x)
		if _, ok := want[name]; !ok { // PEFT wraps a model of vectors without its head
			name = "base_model.model." + strings.TrimPrefix(p.Name, "model.")
		}
		var norm, product float64
		for i, g := range got {
			if s.by != 0 {
				g /= s.by
				got[i] = g
			}
			norm += g * g
			product += g * math.Cos(0.1*float64(i))
		}
		norm = math.Sqrt(norm)
		w := want[name]
		golden.Near(t, "norm of "+name, norm, w[0], tolerance*w[0])
		golden.Near(t, "product of "+name, product, w[1], tolerance*w[0]*math.Sqrt(float64(len(got))/2))
		if err == nil {
			if d := distance(got, whole.Floats(name)); !(d <= tolerance) {
				t.Errorf("gradient of %s is off by %.3g, tolerance %.3g", p.Name, d, tolerance)
			}
		}
	}
}

// TestDPOEqualsTRL compares every loss of DPO with TRL's trainer: the loss, the logged numbers and the gradients, in
// float32 and in float64.
func TestDPOEqualsTRL(t *testing.T) {
	t.Parallel()
	b := stories(t)
	batch := goldenPairs(t, "dpo")
	all := preferenceGoldens(t, "dpo")
	if len(all) < 27 {
		t.Errorf("%d variants", len(all))
	}
	for _, variant := range slices.Sorted(maps.Keys(all)) {
		want := all[variant]
		comparePairs(t, b, "dpo", variant, want, preferenceObjectives["dpo"](t, want.Args), batch)
	}
}

// TestMarginsEqualTRL compares CPO and its kin, SimPO and ORPO with TRL's trainers as TestDPOEqualsTRL does. The
// objective simpo is cpo with two settings.
func TestMarginsEqualTRL(t *testing.T) {
	t.Parallel()
	b := stories(t)
	for trainer, least := range map[string]int{"cpo": 8, "orpo": 1} {
		batch, all := goldenPairs(t, trainer), preferenceGoldens(t, trainer)
		if len(all) < least {
			t.Errorf("%s has %d variants", trainer, len(all))
		}
		for _, variant := range slices.Sorted(maps.Keys(all)) {
			comparePairs(t, b, trainer, variant, all[variant], preferenceObjectives[trainer](t, all[variant].Args), batch)
		}
	}
	batch, want := goldenPairs(t, "cpo"), preferenceGoldens(t, "cpo")["simpo"]
	c := objective.SimPOConfig{Beta: 2, SimPOGamma: 0.5}
	comparePairs(t, b, "cpo", "simpo", want, objective.Of("simpo", objective.Config{SimPO: &c}), batch)
}

// comparePairs compares an objective's loss, numbers and gradients of a batch of pairs with TRL's.
func comparePairs(t *testing.T, b *session.Base, trainer, variant string, want preferenceGolden, o objective.Objective, batch dataset.Batch) {
	for _, c := range []struct {
		float       kernel.DType
		loss, grads float64
	}{{kernel.F32, 1e-4, 2e-3}, {kernel.F64, 1e-9, 1e-6}} {
		t.Run(variant+" "+c.float.String(), func(t *testing.T) {
			policy, reference := want.Adapter, []string(nil)
			if want.Reference != "" {
				policy = path.Base(want.Policy)
				reference = []string{golden.Path(t, "preferences/"+path.Base(want.Reference))}
			}
			adapterDir := golden.Path(t, "preferences/"+policy)
			s := newStepOfPairs(t, b, c.float, o, roomFor(batch), Default(), adapterDir, reference...)
			s.run.Run(step.SegmentBegin)
			s.micro(t, batch, len(batch.Rows))
			n := float64(len(batch.Rows))
			scaled := want.Loss * n * float64(float32(1/n)) // the scale of a loss is a float32
			golden.Near(t, "loss", s.read(t, s.Loss)[0], scaled, c.loss*math.Abs(scaled))
			got := s.numbersOf(t, o, objective.Counts{Tokens: 1, Sequences: int64(len(batch.Segments)), Groups: int64(len(batch.Rows))})
			for name, v := range got {
				if w, ok := want.Metrics[name]; ok {
					golden.Near(t, name, v, w, c.loss*math.Max(math.Abs(w), 1))
				} else if want.Metrics != nil {
					t.Errorf("TRL has no number %s", name)
				}
			}
			for name, v := range want.Metrics {
				none := name == "nll_loss" && v == 0 // TRL logs it as 0 where the loss has none
				if _, ok := got[name]; !ok && !none {
					t.Errorf("TRL logs %s, and the objective has no such number", name)
				}
			}
			s.sameGradients(t, trainer, variant, want.Grads, c.grads)
		})
	}
}

// TestWrongPreferenceLossesFail checks that the tolerance of the losses above tells common mistakes apart.
func TestWrongPreferenceLossesFail(t *testing.T) {
	b := stories(t)
	var made struct {
		Right map[string]float64
		Wrong map[string]map[string]float64
	}
	golden.JSON(t, golden.Path(t, "preferences/wrong_on_purpose.json"), &made)
	tried := 0
	for name, wrong := range made.Wrong {
		trainer, variant, _ := strings.Cut(name, "/")
		own := preferenceObjectives[trainer]
		if own == nil {
			continue
		}
		want := preferenceGoldens(t, trainer)[variant]
		if want.Loss != made.Right[name] {
			t.Errorf("%s: the losses that are right are %v and %v", name, want.Loss, made.Right[name])
		}
		batch := goldenBatch(t, trainer)
		s := newPreferenceStep(t, b, kernel.F32, own(t, want.Args), len(batch.IDs), len(batch.Segments), Default(), golden.Path(t, "preferences/"+want.Adapter))
		s.run.Run(step.SegmentBegin)
		s.micro(t, batch, len(batch.Rows))
		loss := s.read(t, s.Loss)[0]
		golden.Near(t, name, loss, want.Loss, 1e-4*want.Loss)
		for mistake, w := range wrong {
			if tried++; math.Abs(loss-w) <= 1e-4*w {
				t.Errorf("%s: %s gives %v, which the tolerance takes for %v", name, mistake, w, loss)
			}
		}
	}
	if tried == 0 {
		t.Error("no mistake was compared")
	}
}

// preferenceObjectives make the objectives that stand for TRL's trainers of pairs from the trainers' arguments.
var preferenceObjectives = map[string]func(t *testing.T, args map[string]any) objective.Objective{
	"dpo": func(t *testing.T, args map[string]any) objective.Objective {
		var c objective.DPOConfig
		setTRL(t, &c, args)
		return objective.Of("dpo", objective.Config{DPO: &c})
	},
	"cpo": func(t *testing.T, args map[string]any) objective.Objective {
		var c objective.CPOConfig
		setTRL(t, &c, args)
		return objective.Of("cpo", objective.Config{CPO: &c})
	},
	"orpo": func(t *testing.T, args map[string]any) objective.Objective {
		var c objective.ORPOConfig
		setTRL(t, &c, args)
		return objective.Of("orpo", objective.Config{ORPO: &c})
	},
	"kto": func(t *testing.T, args map[string]any) objective.Objective {
		var c objective.KTOConfig
		setTRL(t, &c, args)
		return objective.Of("kto", objective.Config{KTO: &c})
	},
}

// readPairs returns batches of so many pairs as a data set gives them.
func readPairs(t *testing.T, b *session.Base, pairs [][2][2][]int32, size int) (all []dataset.Batch) {
	t.Helper()
	var text []byte
	for _, p := range pairs {
		line, err := json.Marshal(map[string]any{"chosen_input_ids": p[0][0], "chosen_labels": p[0][1],
			"rejected_input_ids": p[1][0], "rejected_labels": p[1][1]})
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	c := dataset.Default()
	c.Path, c.Preferences, c.MaxLength, c.Shuffle, c.CacheDir = "rows.jsonl", true, 128, false, ""
	set, _, err := dataset.LoadFS(t.Context(), fstest.MapFS{"rows.jsonl": {Data: text}}, c, b.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	loader, err := set.TrainLoader(size)
	if err != nil {
		t.Fatal(err)
	}
	for batch, err := range loader.Epoch(0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch)
	}
	return all
}

// precomputedFor returns the objective with the reference's numbers of all batches, which a pass over batches of so many
// tokens and sequences has computed.
func precomputedFor(t *testing.T, b *session.Base, o objective.Objective, batches []dataset.Batch, tokens,
	sequences int) objective.Objective {
	t.Helper()
	cfg, on := peftConfigOf(t, golden.Path(t, "preferences/curve_init")), graph.NewCPU(2)
	form, _ := objective.PrecomputedForm(o)
	planned, err := infer.PlanReference(network(t, b, kernel.F32, nil, &cfg),
		session.Shape{Tokens: tokens, Sequences: sequences, MaxLen: 512}, form, on)
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.Hold(on, func(m graph.Store) error { return b.Load(t.Context(), planned.Net, m, 1) },
		&planned.Program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // read only
	run, err := planned.Bind(m, m.Runs[0])
	if err != nil {
		t.Fatal(err)
	}
	values := objective.NewReferenceValues()
	for _, batch := range batches {
		for len(batch.IDs) < tokens { // padding, in a segment of its own
			batch.IDs, batch.Positions = append(batch.IDs, 0), append(batch.Positions, 0)
			batch.Labels = append(batch.Labels, dataset.Ignore)
		}
		for len(batch.CuSeqlens) < sequences+1 {
			batch.CuSeqlens = append(batch.CuSeqlens, int32(tokens))
		}
		if err := run.Batch(batch, values.Add); err != nil {
			t.Fatal(err)
		}
	}
	return objective.WithReferenceValues(o, values)
}

// TestPreferenceCurvesEqualTRL trains 20 steps as TRL's trainers did: losses, gradient norms and logged numbers of every
// step, in float32 and in float64, and in float32 with a precomputed reference.
func TestPreferenceCurvesEqualTRL(t *testing.T) {
	t.Parallel()
	b := stories(t)
	var all map[string]json.RawMessage
	golden.JSON(t, golden.Path(t, "preferences/curves.json"), &all)
	floats := map[string]bool{} // trainers of which a curve was compared in float32
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var want struct {
			Args  map[string]any
			Micro int `json:"micro_batch"`
			Steps map[string][]float64
		}
		if name == "settings" {
			continue
		}
		var trainer struct{ Trainer string }
		for _, v := range []any{&want, &trainer} {
			if err := json.Unmarshal(all[name], v); err != nil {
				t.Fatal(err)
			}
		}
		kind := strings.ToLower(strings.TrimSuffix(trainer.Trainer[strings.LastIndexByte(trainer.Trainer, '.')+1:], "Trainer"))
		own := preferenceObjectives[kind]
		if own == nil {
			continue
		}
		window, rows := 2, 0 // groups of a step, sequences of a group
		var batches []dataset.Batch
		if kind == "kto" {
			window, batches = 4, curveAnswers(t)
		} else {
			for pairs := range slices.Chunk(curvePairs(t, kind), want.Micro) {
				batches = append(batches, pairBatch(pairs))
			}
		}
		for _, b := range batches {
			rows = max(rows, len(b.Segments)/len(b.Rows))
		}
		_, precomputable := objective.PrecomputedForm(own(t, want.Args))
		for _, c := range []struct {
			float       kernel.DType
			loss, norm  float64
			precomputed string
		}{{kernel.F32, 1e-3, 1e-2, ""}, {kernel.F64, 1e-6, 1e-6, ""}, {kernel.F32, 1e-3, 1e-2, ", precomputed"}} {
			if c.precomputed != "" && !precomputable || c.float == kernel.F32 && floats[kind+c.precomputed] {
				continue // one curve of each trainer is enough in float32
			}
			floats[kind+c.precomputed] = floats[kind+c.precomputed] || c.float == kernel.F32
			t.Run(name+" "+c.float.String()+c.precomputed, func(t *testing.T) {
				o := own(t, want.Args)
				if c.precomputed != "" {
					if kind != "kto" {
						batches = readPairs(t, b, curvePairs(t, kind), want.Micro)
					}
					o = precomputedFor(t, b, o, batches, want.Micro*rows*128, want.Micro*rows+1)
				}
				config := Default()
				config.WeightDecay = 0.01
				s := newPreferenceStep(t, b, c.float, o, want.Micro*rows*128, want.Micro*rows+1, config,
					golden.Path(t, "preferences/curve_init"))
				for at, loss := range want.Steps["loss"] {
					for _, u := range s.Rates {
						h := adamNumbers(config, want.Steps["lr"][at]*u.Factor, at+1)
						s.set(t, u.Numbers, h[:]...)
					}
					s.run.Run(step.SegmentBegin)
					for from := window / want.Micro * at; from < window/want.Micro*(at+1); from++ {
						s.micro(t, batches[from], window)
					}
					s.run.Run(step.SegmentNorm)
					s.run.Run(step.SegmentUpdate)
					near := func(what string, got, want, relative float64) {
						if d := math.Abs(got - want); !(d <= relative*math.Max(math.Abs(want), 1e-3)) {
							t.Errorf("step %d: %s %.9g, TRL %.9g", at, what, got, want)
						}
					}
					near("loss", s.read(t, s.Loss)[0], loss, c.loss)
					near("gradient norm", s.read(t, s.Norm)[0], want.Steps["grad_norm"][at], c.norm)
					for name, v := range s.numbersOf(t, o, objective.Counts{Tokens: 1, Sequences: int64(2 * window),
						Groups: int64(window)}) {
						if w, ok := want.Steps[name]; ok && name != objective.Loss {
							near(name, v, w[at], 10*c.norm)
						}
					}
				}
				s.sameAdapter(t, name)
			})
		}
	}
}

// curvePairs are the rows of the curves as a trainer tokenised them, cut at 128 tokens.
func curvePairs(t *testing.T, trainer string) (pairs [][2][2][]int32) {
	t.Helper()
	var raw map[string]json.RawMessage
	golden.JSON(t, golden.Path(t, "preferences/curve_rows.json"), &raw)
	var own []map[string][]int32
	if err := json.Unmarshal(raw[trainer], &own); err != nil {
		t.Fatal(err)
	}
	for _, r := range own {
		var pair [2][2][]int32
		for i, side := range []string{"chosen", "rejected"} {
			ids, labels := r[side+"_input_ids"], r[side+"_labels"]
			if ids == nil {
				ids = append(slices.Clone(r["prompt_ids"]), r[side+"_ids"]...)
				labels = slices.Clone(ids)
				for k := range r["prompt_ids"] {
					labels[k] = dataset.Ignore
				}
			}
			n := min(len(ids), 128)
			pair[i] = [2][]int32{ids[:n], labels[:n]}
		}
		pairs = append(pairs, pair)
	}
	return pairs
}

// sameAdapter compares the trained adapter with TRL's, where TRAINER_DATA has the set.
func (s *preferenceStep) sameAdapter(t *testing.T, curve string) {
	t.Helper()
	file := filepath.Join(os.Getenv("TRAINER_DATA"), "goldens/methods/curves", curve, "final", adapter.WeightsFile)
	if _, err := os.Stat(file); err != nil {
		return
	}
	ref := golden.Open(t, file)
	for _, p := range s.snapshot(t) {
		for i, w := range ref.Floats("base_model.model." + p.Name) {
			if d := math.Abs(float64(p.Data[i]) - w); !(d <= 2e-3) {
				t.Fatalf("final %s[%d] = %v, TRL %v", p.Name, i, p.Data[i], w)
			}
		}
	}
}
