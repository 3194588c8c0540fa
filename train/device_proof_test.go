//go:build gpu

package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// envProof names a folder of references that scripts/proof_reference.py makes on a machine with a GPU: they
// and the models are too large for the repository.
const envProof = "TRAINER_PROOF"

// worse is how many times PEFT's bf16 error ours may be.
const worse = 1.5

// peerErrors are ‖x-ref‖ / ‖ref‖ of another program's run against float64, over all draws of the batch.
type peerErrors struct {
	Losses    []float64          `json:"losses"` // the losses themselves
	Logits    float64            `json:"logits"`
	NLL       float64            `json:"nll"`
	Gradient  float64            `json:"gradient"`
	Gradients map[string]float64 `json:"gradients"`
}

type proofCase struct {
	Model   string                `json:"model"`
	Scheme  string                `json:"quantization"` // of the linear layers, "" for none
	Losses  []float64             `json:"losses"`       // of each draw, float64
	Draws   int                   `json:"draws"`        // the first so many have logits and gradients too
	Trained []int                 `json:"trained"`
	Peers   map[string]peerErrors `json:"peers"`
}

// scheme is how the case's linear layers are stored: nested scales with NF4.
func (c proofCase) scheme() *quant.Config {
	if c.Scheme == "" {
		return nil
	}
	q := quant.Default()
	q.Type = c.Scheme
	return &q
}

// TestGPUErrorAgainstPEFT compares logits, each token's loss and every LoRA gradient in bf16 with a float64 run of
// transformers and PEFT: ‖ours-ref‖ is at most 1.5 ‖PEFT in bf16-ref‖, tensor by tensor and over all. The norms go over
// several batches: rounding errors of one are one draw. A batch's mean loss is a single number, so its error is taken
// over many more batches (docs/internals/decisions/0041-draws-of-errors.md).
func TestGPUErrorAgainstPEFT(t *testing.T) {
	gputest.Need(t)
	dir := os.Getenv(envProof)
	if dir == "" {
		t.Skipf("%s is not set: scripts/proof_reference.py makes the references", envProof)
	}
	cases, err := filepath.Glob(filepath.Join(dir, "*", "case.json"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("%s=%s holds no NAME/case.json: %v", envProof, dir, err)
	}
	sort.Strings(cases)
	for _, c := range cases {
		t.Run(filepath.Base(filepath.Dir(c)), func(t *testing.T) { compareWithPEFT(t, filepath.Dir(c)) })
	}
}

func compareWithPEFT(t *testing.T, dir string) {
	var c proofCase
	golden.JSON(t, filepath.Join(dir, "case.json"), &c)
	peer, ok := c.Peers["bf16 base"]
	if !ok {
		t.Fatalf("case.json has no peer %q", "bf16 base")
	}
	ref := golden.Open(t, filepath.Join(dir, "reference.safetensors"))
	if c.Draws < 1 || c.Draws > len(c.Losses) || len(c.Trained) != len(c.Losses) || len(peer.Losses) != len(c.Losses) {
		t.Fatalf("case.json has %d losses, %d of PEFT's, %d draws: make it anew", len(c.Losses),
			len(peer.Losses), c.Draws)
	}
	got := gradientsOnGPU(t, c, filepath.Join(dir, "adapter"), ref)
	check := func(what string, ours, theirs float64) {
		if !(ours <= worse*theirs) {
			t.Errorf("%s: error %.4g, PEFT's in bf16 %.4g: %.2f times, at most %.1f", what, ours,
				theirs, ours/theirs, worse)
		}
	}
	var loss, peerLoss, bias, peerBias float64
	var logits, nll, all errorNorm
	tensors := map[string]*errorNorm{}
	for i, g := range got {
		if g.trained != c.Trained[i] {
			t.Fatalf("draw %d: %d trained tokens, PEFT has %d", i, g.trained, c.Trained[i])
		}
		ours, theirs := g.loss-c.Losses[i], peer.Losses[i]-c.Losses[i]
		loss, peerLoss = loss+ours*ours, peerLoss+theirs*theirs
		bias, peerBias = bias+ours/float64(len(got)), peerBias+theirs/float64(len(got))
		if i >= c.Draws {
			continue
		}
		logits.add(g.logits, ref.Floats(fmt.Sprint(i, " logits")))
		nll.add(g.nll, ref.Floats(fmt.Sprint(i, " nll")))
		for name, x := range g.gradients {
			want := ref.Floats(fmt.Sprint(i, " grad base_model.model.", name))
			if tensors[name] == nil {
				tensors[name] = &errorNorm{}
			}
			tensors[name].add(x, want)
			all.add(x, want)
		}
	}
	n := float64(len(got))
	check("loss", math.Sqrt(loss/n), math.Sqrt(peerLoss/n))
	check("logits", logits.relative(), peer.Logits)
	check("tokens' losses", nll.relative(), peer.NLL)
	check("all gradients", all.relative(), peer.Gradient)
	type line struct {
		name         string
		ours, theirs float64
	}
	var lines []line
	for name, e := range tensors {
		l := line{name, e.relative(), peer.Gradients["base_model.model."+name]}
		check("gradient of "+name, l.ours, l.theirs)
		lines = append(lines, l)
	}
	if len(lines) != len(peer.Gradients) {
		t.Errorf("%d gradients, PEFT has %d", len(lines), len(peer.Gradients))
	}
	sort.Slice(lines, func(i, j int) bool { return lines[i].ours*lines[j].theirs > lines[j].ours*lines[i].theirs })
	t.Logf("%d batches, %d of them whole; loss off by %.3g (root mean square; mean %+.3g), PEFT bf16 %.3g (%+.3g); "+
		"first loss %.6f, float64 %.6f, PEFT bf16 %.6f",
		len(got), c.Draws, math.Sqrt(loss/n), bias, math.Sqrt(peerLoss/n), peerBias, got[0].loss,
		c.Losses[0], peer.Losses[0])
	t.Logf("%-22s %10s %10s %10s %10s", "error", "ours", "bf16 base", "fp32 base", "float32")
	other, f32 := c.Peers["fp32 base"], c.Peers["float32"]
	for _, l := range []struct {
		what             string
		ours, p, q, base float64
	}{{"logits", logits.relative(), peer.Logits, other.Logits, f32.Logits},
		{"tokens' losses", nll.relative(), peer.NLL, other.NLL, f32.NLL},
		{"all gradients", all.relative(), peer.Gradient, other.Gradient, f32.Gradient}} {
		t.Logf("%-22s %10.3g %10.3g %10.3g %10.3g", l.what, l.ours, l.p, l.q, l.base)
	}
	for i, at := range []int{0, 1, 2, len(lines) / 2, len(lines) - 1} {
		l := lines[at]
		t.Logf("%s of %d tensors: %s ours %.4g, PEFT %.4g: %.3f times",
			[...]string{"worst", "second", "third", "median", "best"}[i], len(lines), l.name, l.ours,
			l.theirs, l.ours/l.theirs)
	}
}

// errorNorm gathers ‖got-want‖ / ‖want‖ over several tensors.
type errorNorm struct{ d, n float64 }

func (e *errorNorm) add(got, want []float64) {
	if len(got) != len(want) {
		e.d = math.NaN()
		return
	}
	for i, w := range want {
		e.d += (got[i] - w) * (got[i] - w)
		e.n += w * w
	}
}

func (e *errorNorm) relative() float64 { return math.Sqrt(e.d / e.n) }

// onGPU is one micro-batch's numbers in bf16.
type onGPU struct {
	loss      float64
	trained   int
	logits    []float64 // of the reference's rows
	nll       []float64 // of each place, 0 where nothing is trained
	gradients map[string][]float64
}

// gradientsOnGPU runs the training step's forward and backward on each draw, and for the logits of whole ones the same
// net without the backward pass.
func gradientsOnGPU(t *testing.T, c proofCase, adapterDir string, ref golden.Tensors) []onGPU {
	t.Helper()
	on := gputest.Open(t)
	cfg, err := families.LoadConfig(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	w, err := weights.OpenDir(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	b := &session.Base{Name: c.Model, Config: cfg, Weights: w}
	defer b.Close() //nolint:errcheck // read only
	lora := peftConfigOf(t, adapterDir)
	nw := network(t, b, kernel.F32, c.scheme(), &lora)
	dims := ref.Shape("0 input_ids")
	s := session.Shape{Tokens: dims[0] * dims[1], Sequences: dims[0], MaxLen: dims[1]}
	got := make([]onGPU, len(c.Losses))

	ts := newTestStepOn(t, on, b, nw, s, Default(), adapterDir)
	for i := range got {
		g := &got[i]
		g.gradients = map[string][]float64{}
		g.trained = ts.fill(t, ref.Ints(fmt.Sprint(i, " input_ids")), ref.Ints(fmt.Sprint(i, " labels")), dims[1])
		ts.set(t, "loss scale", 1/float64(g.trained))
		ts.send(t)
		for _, seg := range []string{step.SegmentBegin, step.SegmentMicro} {
			if err := ts.run.Run(seg); err != nil {
				t.Fatal(err)
			}
		}
		g.loss = ts.read(t, ts.Loss)[0]
		if i >= c.Draws {
			continue
		}
		for _, p := range ts.Trained.Params {
			name := "gradient of " + p.Name
			if err := ts.memory.Get(name); err != nil {
				t.Fatal(err)
			}
			x, err := ts.memory.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			g.gradients[p.Name] = slices.Clone(numbers(x))
		}
	}
	if err := ts.memory.Close(); err != nil {
		t.Fatal(err)
	}
	logitsOnGPU(t, on, b, nw, s, adapterDir, ref, got[:c.Draws])
	return got
}

// send puts a micro-batch, which goes as a whole, on the device.
func (ts *testStep) send(t testing.TB) {
	t.Helper()
	if err := ts.memory.Put("input_ids", "cu_seqlens", "labels", "loss scale"); err != nil {
		t.Fatal(err)
	}
}

func logitsOnGPU(t *testing.T, on graph.Machine, b *session.Base, nw session.Network, s session.Shape,
	adapterDir string, ref golden.Tensors, got []onGPU) {
	t.Helper()
	n, trained, in := nw.Declare("", s)
	o := objective.Of(objective.Default, objective.Config{})
	data := o.Declare(n, "", s)
	hidden := nw.Hidden(n, in)
	head := nw.Head(n)
	logits := n.Apply(kernel.MatMul{TransB: true}, hidden, head)
	out := o.Eval(n, objective.Network{Hidden: hidden, Head: head, LossRows: nw.LossRows(on),
		LogitCap: nw.Config.LogitCap}, data)
	plan, err := on.Compile(n.Builder, logits, out.Each)
	if err != nil {
		t.Fatal(err)
	}
	step := &step.Step{Program: session.Program{Net: n, Trained: trained, Plan: plan}}
	ts := bound(t, on, b, step, Default(), adapterDir)
	defer ts.memory.Close() //nolint:errcheck // the numbers were read
	V := nw.Config.VocabSize
	for i := range got {
		ts.fill(t, ref.Ints(fmt.Sprint(i, " input_ids")), ref.Ints(fmt.Sprint(i, " labels")), s.MaxLen)
		ts.set(t, "loss scale", 1)
		ts.send(t)
		if err := ts.run.Run("main"); err != nil {
			t.Fatal(err)
		}
		all := ts.read(t, logits)
		for _, r := range ref.Ints("logit_rows") {
			got[i].logits = append(got[i].logits, all[int(r)*V:(int(r)+1)*V]...)
		}
		got[i].nll = slices.Clone(ts.read(t, out.Each))
	}
}

// TestGPUWithoutBLAS trains the same steps on cuBLASLt's GEMMs and on native ones.
func TestGPUWithoutBLAS(t *testing.T) {
	gputest.Need(t)
	if dir := os.Getenv("TRAINER_TEST_RUN"); dir != "" { // the child: a process opens one library
		s := testSpec(t, 20)
		s.Device, s.OutputDir = "cuda", dir
		r := mustStart(t, s, Env{})
		text := fmt.Sprint(r.Losses)
		if err := os.WriteFile(filepath.Join(dir, "losses"), []byte(strings.Trim(text, "[]")), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	var curves [2][]float64
	for i, library := range []string{"", "/nonexistent/libcublasLt.so"} {
		dir := filepath.Join(t.TempDir(), "run")
		env := []string{"TRAINER_TEST_RUN=" + dir}
		if library != "" {
			env = append(env, "TRAINER_CUBLASLT="+library)
		}
		if out, err := childTest(t, "TestGPUWithoutBLAS", env...).CombinedOutput(); err != nil {
			t.Fatalf("cuBLASLt %q: %v\n%s", library, err, out)
		}
		for _, f := range strings.Fields(string(golden.ReadFile(t, dir, "losses"))) {
			var x float64
			if _, err := fmt.Sscan(f, &x); err != nil {
				t.Fatal(err)
			}
			curves[i] = append(curves[i], x)
		}
	}
	worst, same := 0.0, true
	for i, x := range curves[0] {
		worst = math.Max(worst, math.Abs(curves[1][i]-x))
		same = same && curves[1][i] == x
	}
	t.Logf("20 steps, largest difference of a loss %.4g; cuBLASLt %v, ours %v", worst, curves[0][19], curves[1][19])
	if len(curves[0]) != 20 || !(worst < 0.05) {
		t.Errorf("losses differ by up to %.4g: cuBLASLt %v, ours %v", worst, curves[0], curves[1])
	}
	if same {
		t.Error("both curves are the same to the bit: the library that was named away was used")
	}
}

// TestGPURefusesBeforeItHolds: a run that the free memory does not hold is refused by its plan, with what would fit.
func TestGPURefusesBeforeItHolds(t *testing.T) {
	gputest.Need(t)
	s := testSpec(t, 2)
	s.Device, s.VRAM = "cuda", "1MiB"
	_, err := Start(context.Background(), s, Env{})
	if !errors.Is(err, session.ErrDoesNotFit) {
		t.Fatalf("a run in 1 MiB: %v", err)
	}
	if _, err := os.Stat(s.OutputDir); err == nil {
		t.Error("the refused run made its folder")
	}
	t.Log(err)
}
