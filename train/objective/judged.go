package objective

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/tierlora/tierlora/kernel"
)

// Judging is an optional capability of an Objective: some of its Numbers are computed from what the model gives all
// rows of an evaluation together, such as F1. They have no value in steps.
type Judging interface {
	// Judge returns the values of the Judged Numbers. It leaves out a number that the rows say nothing of.
	Judge(j Judged) []Value
}

// Judged is what a model gave the rows of an evaluation beside their targets: records of Width numbers, whose meaning
// the objective knows. The zero value has none.
type Judged struct {
	Width int
	Rows  []float32
}

// maxJudged bounds the numbers of an evaluation's records, 32 MiB.
const maxJudged = 1 << 23

// Add appends the records of another batch. Records beyond maxJudged numbers are left out.
func (j *Judged) Add(o Judged) {
	if j.Width == 0 {
		j.Width = o.Width
	}
	if o.Width == j.Width && len(j.Rows)+len(o.Rows) <= maxJudged {
		j.Rows = append(j.Rows, o.Rows...)
	}
}

// each yields the records.
func (j Judged) each(yield func(record []float32) bool) {
	for at := 0; j.Width > 0 && at+j.Width <= len(j.Rows); at += j.Width {
		if !yield(j.Rows[at:][:j.Width]) {
			return
		}
	}
}

// JudgedFiller is what the Filler of a Judging objective also has.
type JudgedFiller interface {
	// Judged returns the records of the batch that Fill wrote, given the values of Outcome.Outputs.
	Judged(outputs [][]float32) Judged
}

// JudgedValues returns the values of an objective's Judged Numbers; nil for an objective without any.
func JudgedValues(o Objective, j Judged) []Value {
	if judge, ok := o.(Judging); ok {
		return judge.Judge(j)
	}
	return nil
}

// mostNamed is the most labels whose F1 is a number of its own.
const mostNamed = 50

// labelName returns the name of a label in numbers.
func (c ClassificationConfig) labelName(l int) string {
	if l < len(c.Labels) {
		return c.Labels[l]
	}
	return strconv.Itoa(l)
}

// judgedNumbers are the F1 of each label and their mean, or Spearman's correlation for numbers and rerankers.
func (o classes) judgedNumbers() (all []Number) {
	if o.correlates() {
		return []Number{{Name: "spearman", Judged: true, HigherIsBetter: true}}
	}
	all = []Number{{Name: "f1_macro", Judged: true, HigherIsBetter: true}}
	for l := 0; l < o.Count() && o.Count() <= mostNamed; l++ {
		all = append(all, Number{Name: "f1/" + o.labelName(l), Judged: true, HigherIsBetter: true})
	}
	return all
}

// correlates reports whether rows have numbers, whose order the scores should have.
func (o classes) correlates() bool {
	return o.form == kernel.ClassRegression || o.isMulti() && o.Count() == 1
}

func (o classes) isMulti() bool { return o.form == kernel.ClassMulti }

// Judged returns a record for each row or token with a label: its class and the scores, or its targets and the scores.
func (f *classFiller) Judged(outputs [][]float32) (j Judged) {
	L := f.Count()
	scores, targets := outputs[0], 1
	if f.targets != nil {
		targets = L
	}
	j.Width = targets + L
	for s, label := range f.labels {
		if label < 0 {
			continue
		}
		if f.targets != nil {
			j.Rows = append(j.Rows, f.targets[s*L:][:L]...)
		} else {
			j.Rows = append(j.Rows, float32(label))
		}
		for l, x := range scores[s*L:][:L] {
			if len(outputs) > 1 {
				x += outputs[1][l]
			}
			j.Rows = append(j.Rows, x)
		}
	}
	return j
}

// Judge computes F1 from counts of labels, or the mean of the correlations of each number.
func (o classes) Judge(j Judged) (all []Value) {
	if len(j.Rows) == 0 {
		return nil
	}
	if o.correlates() {
		return o.correlation(j)
	}
	L := o.Count()
	right, given, predicted := make([]float64, L), make([]float64, L), make([]float64, L)
	for record := range j.each {
		targets, scores := record[:len(record)-L], record[len(record)-L:]
		best := slices.Index(scores, slices.Max(scores))
		for l := range L {
			is, says := len(targets) == L && targets[l] > 0.5, scores[l] > 0
			if !o.isMulti() {
				is, says = int(targets[0]) == l, best == l
			}
			given[l] += number(is)
			predicted[l] += number(says)
			right[l] += number(is && says)
		}
	}
	sum, of := 0., 0.
	for l := range L {
		if given[l]+predicted[l] == 0 {
			continue // no row has the label, and none is said to
		}
		f1 := 2 * right[l] / (given[l] + predicted[l])
		sum, of = sum+f1, of+1
		if L <= mostNamed {
			all = append(all, Value{"f1/" + o.labelName(l), f1})
		}
	}
	if of == 0 {
		return nil
	}
	return append([]Value{{"f1_macro", sum / of}}, all...)
}

// correlation returns the mean over a row's numbers of the correlation of targets with scores.
func (o classes) correlation(j Judged) []Value {
	L, sum, of := o.Count(), 0., 0.
	for l := range L {
		var x, y []float64
		for record := range j.each {
			x, y = append(x, float64(record[l])), append(y, float64(record[L+l]))
		}
		if r, ok := spearman(x, y); ok {
			sum, of = sum+r, of+1
		}
	}
	if of == 0 {
		return nil
	}
	return []Value{{"spearman", sum / of}}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// spearman returns Spearman's rank correlation, equal values sharing the mean of their ranks as in scipy; false where a
// list has no two different values.
func spearman(x, y []float64) (r float64, ok bool) {
	a, b := ranks(x), ranks(y)
	mean := float64(len(x)-1) / 2
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+(a[i]-mean)*(b[i]-mean), aa+(a[i]-mean)*(a[i]-mean), bb+(b[i]-mean)*(b[i]-mean)
	}
	return ab / math.Sqrt(aa*bb), aa > 0 && bb > 0
}

// ranks returns the rank of each number from 0.
func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	all := make([]float64, len(x))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && x[order[to]] == x[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			all[i] = float64(from+to-1) / 2
		}
		from = to
	}
	return all
}

// Parts of a contrastive row's records, before its vector.
const (
	partAnchor = iota
	partPositive
	partNegative
)

// recalls are the k of the recall@k that evaluations report.
var recalls = []int{1, 5, 10}

// mostAnchors is the most anchors whose positive is looked for.
const mostAnchors = 1000

// judgedNumbers are recall@k, the mean reciprocal rank, and the correlation of similarities with scores.
func (contrastive) judgedNumbers() (all []Number) {
	for _, k := range recalls {
		all = append(all, Number{Name: "recall@" + strconv.Itoa(k), Judged: true, HigherIsBetter: true})
	}
	return append(all, Number{Name: "mrr", Judged: true, HigherIsBetter: true},
		Number{Name: "spearman", Judged: true, HigherIsBetter: true})
}

// Judged returns a record for each text: its part of the row, the row's score, which is not a number for a row without
// one, and the vector, divided by its length if texts are compared by cosines.
func (f *contrastFiller) Judged(outputs [][]float32) (j Judged) {
	C := len(outputs[0]) / len(f.targets)
	j.Width = 2 + C
	for _, row := range f.rows {
		for i, s := range row.own {
			vector := slices.Clone(outputs[0][int(s)*C:][:C])
			if f.Normalize {
				toUnit(vector)
			}
			j.Rows = append(append(j.Rows, float32(min(i, partNegative)), row.score), vector...)
		}
	}
	return j
}

// toUnit divides a vector by its length.
func toUnit(v []float32) {
	by := math.Sqrt(dot(v, v))
	for i, x := range v {
		if v[i] = 0; by > 0 {
			v[i] = float32(float64(x) / by)
		}
	}
}

func dot(x, y []float32) (sum float64) {
	for i, v := range x {
		sum += float64(v) * float64(y[i])
	}
	return sum
}

// Judge looks for the positive of each anchor among all positives and negatives of the evaluation, and compares the
// similarities of rows with a score with these.
func (contrastive) Judge(j Judged) (all []Value) {
	var anchors, own, candidates [][]float32
	var scores, similarities []float64
	var anchor []float32
	for record := range j.each {
		part, score, vector := int(record[0]), record[1], record[2:]
		switch scored := score == score; {
		case part == partAnchor:
			anchor = vector
		case scored && part == partPositive:
			scores, similarities = append(scores, float64(score)), append(similarities, dot(anchor, vector))
		case !scored:
			if candidates = append(candidates, vector); part == partPositive && len(anchors) < mostAnchors {
				anchors, own = append(anchors, anchor), append(own, vector)
			}
		}
	}
	within, reciprocal := make([]float64, len(recalls)), 0.
	for i, a := range anchors {
		rank, similar := 1, dot(a, own[i])
		for _, c := range candidates {
			if dot(a, c) > similar {
				rank++
			}
		}
		reciprocal += 1 / float64(rank)
		for n, k := range recalls {
			within[n] += number(rank <= k)
		}
	}
	if n := float64(len(anchors)); n > 0 {
		for i, k := range recalls {
			all = append(all, Value{"recall@" + strconv.Itoa(k), within[i] / n})
		}
		all = append(all, Value{"mrr", reciprocal / n})
	}
	if r, ok := spearman(scores, similarities); ok {
		all = append(all, Value{"spearman", r})
	}
	return all
}
