package train

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/session"
)

// Reference is a learning curve of another implementation with its spread over seeds, as scripts/reference_curve.py
// writes it. expect.reference compares a run with it.
type Reference struct {
	Format    int               `json:"format"`     // version of the format: 1
	BaseModel string            `json:"base_model"` // name of the model for readers; the hash in Subject identifies it
	MadeBy    map[string]string `json:"made_by"`    // versions, device and precision of the other implementation
	Subject   Subject           `json:"subject"`
	Seeds     []int64           `json:"seeds"`
	Window    int               `json:"window"` // number of steps that each point of the curve averages
	Tolerance Tolerance         `json:"tolerance"`
	Loss      Curve             `json:"loss"` // smoothed loss of every step; see Smooth
	// EvalBefore and EvalLoss are the validation losses before the first step and after the last. nil = there were
	// none.
	EvalBefore *float64 `json:"eval_loss_before,omitempty"`
	EvalLoss   *Band    `json:"eval_loss,omitempty"`

	pooled float64 // Loss.pooled(), computed once
}

// Tolerance is the allowed distance from the mean, in either direction: Floor plus K times the spread at the step, or K
// times the spread of the whole curve (Curve.pooled) if that is larger. A few seeds estimate the spread of a single
// step badly.
type Tolerance struct {
	K     float64 `json:"k"`
	Floor float64 `json:"floor"`
}

// Curve has the mean over the seeds at each step, and the standard deviation.
type Curve struct {
	Mean   []float64 `json:"mean"`
	Spread []float64 `json:"spread"`
}

// Band has a mean over the seeds with its standard deviation.
type Band struct {
	Mean   float64 `json:"mean"`
	Spread float64 `json:"spread"`
}

// Limits of a curve file. They keep a damaged file from allowing every run.
const (
	referenceFormat  = 1
	maxReferenceFile = 16 << 20
	maxReferenceLoss = 1e6
	maxReferenceK    = 100
	maxReferenceText = 200
	maxReferenceKeys = 100
)

// OpenReference reads the curve that expect.reference names: a file, or embedded:NAME. It returns nil for "".
func OpenReference(name string, env session.Env) (*Reference, error) {
	if name == "" {
		return nil, nil
	}
	data, err := readReference(name, env)
	var r Reference
	if err == nil {
		r, err = ParseReference(data)
	}
	if err != nil {
		return nil, fmt.Errorf("expect.reference: read %s: %w", name, err)
	}
	return &r, nil
}

func readReference(name string, env session.Env) ([]byte, error) {
	if short, ok := strings.CutPrefix(name, session.EmbeddedPrefix); ok {
		if env.Data == nil {
			return nil, errors.New("this program carries no reference curves")
		}
		fsys, err := env.Data(short)
		if err != nil {
			return nil, err
		}
		return fs.ReadFile(fsys, short)
	}
	f, err := regular.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(f, maxReferenceFile+1))
	if err == nil && len(data) > maxReferenceFile {
		err = fmt.Errorf("it has more than %s: it is no reference curve", session.FormatBytes(maxReferenceFile))
	}
	return data, err
}

// ParseReference parses a curve and checks that it is complete.
func ParseReference(data []byte) (Reference, error) {
	var r Reference
	if err := jsonerr.Strict(data, &r); err != nil {
		return Reference{}, fmt.Errorf("no reference curve of scripts/reference_curve.py: %w", err)
	}
	if err := r.check(); err != nil {
		return Reference{}, fmt.Errorf("the reference curve is damaged: %w; make it again with "+
			"scripts/reference_curve.py", err)
	}
	r.pooled = r.Loss.pooled()
	return r, nil
}

func (r Reference) check() error {
	s := r.Subject
	n := s.Steps
	seeds := slices.Sorted(slices.Values(r.Seeds))
	switch {
	case r.Format != referenceFormat:
		return fmt.Errorf("format is %d, this program reads %d", r.Format, referenceFormat)
	case n < 1 || len(r.Loss.Mean) != n || len(r.Loss.Spread) != n:
		return fmt.Errorf("subject.steps is %d, loss.mean has %d numbers and loss.spread %d: want the same number, "+
			"1 or more", n, len(r.Loss.Mean), len(r.Loss.Spread))
	case r.Window < 1 || r.Window > n:
		return fmt.Errorf("window is %d, want 1 to %d steps", r.Window, n)
	case len(seeds) < 2 || len(slices.Compact(seeds)) != len(r.Seeds):
		return fmt.Errorf("seeds are %v: a spread takes two at least, each once", r.Seeds)
	case !(r.Tolerance.K >= 0 && r.Tolerance.K <= maxReferenceK):
		return fmt.Errorf("tolerance.k is %v, want 0 to %d", r.Tolerance.K, maxReferenceK)
	case !(r.Tolerance.Floor > 0 && r.Tolerance.Floor <= maxReferenceLoss):
		return fmt.Errorf("tolerance.floor is %v, want above 0", r.Tolerance.Floor)
	case len(s.Configuration) == 0 || len(s.Configuration) > maxReferenceKeys:
		return fmt.Errorf("subject.configuration has %d keys", len(s.Configuration))
	case (r.EvalBefore == nil) != (r.EvalLoss == nil):
		return errors.New("one of eval_loss_before and eval_loss is missing")
	}
	for _, h := range []struct{ key, hash string }{{"base_weights_sha256", s.Base}, {"rows_sha256", s.Rows},
		{"validation_sha256", s.Validation}} {
		if len(h.hash) != 64 || strings.Trim(h.hash, "0123456789abcdef") != "" {
			return fmt.Errorf("subject.%s is no SHA-256 in hexadecimal", h.key)
		}
	}
	for i := range n {
		if b := (Band{r.Loss.Mean[i], r.Loss.Spread[i]}); !b.sound() {
			return fmt.Errorf("loss at step %d is %v with a spread of %v", i+1, b.Mean, b.Spread)
		}
	}
	if r.EvalLoss != nil && !(r.EvalLoss.sound() && (Band{Mean: *r.EvalBefore}).sound()) {
		return fmt.Errorf("eval_loss is %v with a spread of %v, %v before", r.EvalLoss.Mean,
			r.EvalLoss.Spread, *r.EvalBefore)
	}
	return r.checkTexts()
}

func (b Band) sound() bool {
	return b.Mean >= 0 && b.Mean <= maxReferenceLoss && b.Spread >= 0 && b.Spread <= maxReferenceLoss
}

// checkTexts refuses control characters and overlong texts, because terminals and pages show them.
func (r Reference) checkTexts() error {
	plain := func(what, text string) error {
		if len(text) > maxReferenceText || strings.ContainsFunc(text,
			func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }) {
			return fmt.Errorf("%s is longer than %d bytes, or has characters that cannot be printed",
				what, maxReferenceText)
		}
		return nil
	}
	if err := plain("base_model", r.BaseModel); err != nil {
		return err
	}
	if len(r.MadeBy) > maxReferenceKeys {
		return fmt.Errorf("made_by has %d keys", len(r.MadeBy))
	}
	for _, texts := range []map[string]string{r.MadeBy, r.Subject.Configuration} {
		for k, v := range texts {
			if err := errors.Join(plain("a key", k), plain("a value", v)); err != nil {
				return errors.New("a text in made_by or subject.configuration is too long or cannot be printed")
			}
		}
	}
	return nil
}

// pooled returns the root mean square of the spreads of all steps.
func (c Curve) pooled() float64 {
	sum := 0.0
	for _, s := range c.Spread {
		sum += s * s
	}
	return math.Sqrt(sum / float64(len(c.Spread)))
}

// allowed returns the allowed distance of a run from a band.
func (r *Reference) allowed(b Band) float64 {
	return r.Tolerance.K*max(b.Spread, r.pooled) + r.Tolerance.Floor
}

// Smooth returns, at each step, the mean of the last window losses; at the start it averages as many losses as there
// are.
func Smooth(losses []float64, window int) []float64 {
	smooth := make([]float64, len(losses))
	for i := range losses {
		part := losses[max(0, i+1-window) : i+1]
		sum := 0.0
		for _, l := range part {
			sum += l
		}
		smooth[i] = sum / float64(len(part))
	}
	return smooth
}

// difference returns the reasons why the curves of two subjects cannot be compared; reference is the expected subject.
func (s Subject) difference(reference Subject) []string {
	var why []string
	if s.Steps != reference.Steps {
		why = append(why, fmt.Sprintf("the run has %d steps, the reference %d", s.Steps, reference.Steps))
	}
	if s.Base != reference.Base {
		why = append(why, fmt.Sprintf("the base model's weights have the hash %.12s, the reference's %.12s",
			s.Base, reference.Base))
	}
	var keys []string
	for _, of := range []map[string]string{s.Configuration, reference.Configuration} {
		for k := range of {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		is, has := s.Configuration[k]
		was, had := reference.Configuration[k]
		if is != was || has != had {
			why = append(why, fmt.Sprintf("%s is %s, in the reference %s", k, said(is, has), said(was, had)))
		}
	}
	if s.Rows != reference.Rows && s.Steps == reference.Steps {
		why = append(why, "its steps train other rows, or the rows in another order (dataset, seed, tokenizer)")
	}
	if s.Validation != reference.Validation {
		why = append(why, "its validation rows are others")
	}
	return why
}

func said(value string, there bool) string {
	switch {
	case !there:
		return "not known"
	case value == "":
		return "empty"
	}
	return value
}

func finiteOrNil(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
