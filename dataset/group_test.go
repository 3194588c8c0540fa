package dataset

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// madeGroups are rows of 1 to 5 sequences of 2 to longest tokens. Ids tell the row, the sequence and the token.
func madeGroups(n, longest int, seed uint64) []Row {
	r := newRandom(seed)
	rows := make([]Row, n)
	for i := range rows {
		row := Row{Index: i, Line: i + 1, Source: "made", Desirable: Desirability(int(r.below(3)) - 1)}
		for s := range 1 + int(r.below(5)) {
			if s > 0 {
				row.Borders = append(row.Borders, int32(len(row.IDs)))
			}
			length := 2 + int(r.below(uint64(longest-1)))
			masked := 1 + int(r.below(uint64(length-1)))
			for t := range length {
				row.IDs, row.Labels = append(row.IDs, int32(1000*(i+1)+100*s+t)), append(row.Labels, Ignore)
				if t >= masked {
					row.Labels[len(row.Labels)-1] = row.IDs[len(row.IDs)-1]
				}
			}
		}
		rows[i] = row
	}
	return rows
}

// groupVariants are the layouts of rows of at most 5 sequences of at most 40 tokens.
func groupVariants(t *testing.T, test func(t *testing.T, rows []Row, opt Options)) {
	for _, n := range []int{1, 7, 64, 333} {
		for _, batch := range []int{1, 4} {
			for _, shuffled := range []bool{false, true} {
				opt := Options{BatchSize: batch, T: 200, Longest: 40, PadID: 9, Seed: 5, Shuffle: shuffled}
				packed, wide, padded := opt, opt, opt
				packed.Packing, wide.Packing, wide.T, padded.Padded = true, true, 512, true
				layouts := map[string]Options{"end to end": opt, "packed": packed, "packed wide": wide, "padded": padded}
				for name, opt := range layouts {
					t.Run(fmt.Sprintf("rows=%d,batch=%d,shuffle=%v,%s", n, batch, shuffled, name), func(t *testing.T) {
						test(t, madeGroups(n, 40, uint64(n)), opt)
					})
				}
			}
		}
	}
}

// checkGroups proves that a batch is whole groups, padding and nothing else, and that it says where their sequences
// lie.
func checkGroups(t *testing.T, l *Loader, b Batch) {
	t.Helper()
	shape := l.Shape()
	M, T := len(b.IDs), shape.T
	if shape.Flat {
		T = M
	}
	if !slices.Contains(shape.Budgets, M) || len(b.CuSeqlens) != shape.Borders || len(b.Starts) != len(b.Rows) {
		t.Fatalf("%d ids, %d borders, %d starts of %d rows: want %+v", M, len(b.CuSeqlens), len(b.Starts), len(b.Rows), shape)
	}
	if b.CuSeqlens[0] != 0 || b.CuSeqlens[shape.Borders-1] != int32(M) || !slices.IsSorted(b.CuSeqlens) {
		t.Fatalf("borders %v", b.CuSeqlens)
	}
	ours := make([]bool, M)
	groups, segments := b.Sequences()
	if len(groups) != len(b.Rows)+1 || groups[0] != 0 || int(groups[len(b.Rows)]) != len(segments) {
		t.Fatalf("groups %v of %d rows and %d segments", groups, len(b.Rows), len(segments))
	}
	tokens := 0
	for k, i := range b.Rows {
		row := b.of.Row(i)
		if ids, labels := b.Row(k); !slices.Equal(ids, row.IDs) || !slices.Equal(labels, row.Labels) {
			t.Fatalf("row %d is not whole", i)
		}
		if from, to := b.Starts[k], b.Starts[k]+len(row.IDs)-1; from/T != to/T {
			t.Fatalf("row %d lies in two sequences", i)
		}
		own := segments[groups[k]:groups[k+1]]
		if len(own) != row.Sequences() {
			t.Fatalf("row %d has %d segments, want %d", i, len(own), row.Sequences())
		}
		for s, segment := range own {
			from, to := int(b.CuSeqlens[segment]), int(b.CuSeqlens[segment+1])
			if ids, _ := row.Sequence(s); !slices.Equal(b.IDs[from:to], ids) {
				t.Fatalf("sequence %d of row %d is not segment %d", s, i, segment)
			}
			for at := from; at < to; at++ {
				if b.Positions[at] != int32(at-from) || b.Real[at] != 1 || ours[at] {
					t.Fatalf("token %d of row %d: position %d, real %d", at, i, b.Positions[at], b.Real[at])
				}
				ours[at] = true
			}
			tokens += to - from
		}
		label := Unlabelled
		if b.Desirable != nil {
			label = b.Desirable[k]
		}
		if label != row.Desirable {
			t.Fatalf("row %d is %v, want %v", i, label, row.Desirable)
		}
	}
	for at, own := range ours {
		if !own && (b.IDs[at] != l.opt.PadID || b.Labels[at] != Ignore || b.Real[at] != 0) {
			t.Fatalf("token %d is neither a row's nor padding", at)
		}
	}
	for s := range shape.Borders - 1 {
		if n := int(b.CuSeqlens[s+1] - b.CuSeqlens[s]); n > shape.Longest {
			t.Fatalf("a segment of %d tokens, the longest has %d", n, shape.Longest)
		}
	}
	if tokens != b.Tokens || countTrained(b.Labels) != b.TrainedTokens {
		t.Fatalf("%d of %d tokens, %d of %d trained", tokens, b.Tokens, countTrained(b.Labels), b.TrainedTokens)
	}
}

// rowsOf lists the rows of batches in their order.
func rowsOf(batches []Batch) (rows []int) {
	for _, b := range batches {
		rows = append(rows, b.Rows...)
	}
	return rows
}

// checkEpoch proves that a loader deals every row of an epoch once, and returns the batches.
func checkEpoch(t *testing.T, l *Loader, rows, window int) (batches []Batch) {
	t.Helper()
	for epoch := l.at.epoch; l.at.epoch == epoch; {
		step, trained, err := l.NextWindow(window)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, b := range step {
			checkGroups(t, l, b)
			sum += b.TrainedTokens
		}
		if sum != trained {
			t.Fatalf("%d trained tokens, the divisor is %d", sum, trained)
		}
		batches = append(batches, step...)
	}
	seen := rowsOf(batches)
	slices.Sort(seen)
	if !slices.Equal(seen, rowsOf([]Batch{{Rows: indices(rows)}})) {
		t.Fatalf("the epoch has %d rows, want each of %d once", len(seen), rows)
	}
	return batches
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestGroupsStayWhole: whatever the layout, a group lies whole in one micro-batch, every row comes once an epoch, and
// the budgets change no batch.
func TestGroupsStayWhole(t *testing.T) {
	groupVariants(t, func(t *testing.T, rows []Row, opt Options) {
		l := mustLoader(t, rows, opt)
		first := checkEpoch(t, l, len(rows), 1)
		second := checkEpoch(t, l, len(rows), 3)
		if opt.Shuffle && len(rows) > 9 && slices.Equal(rowsOf(first), rowsOf(second)) {
			t.Fatal("two epochs have the same order")
		}
		if !opt.Shuffle && opt.flat() && !slices.Equal(rowsOf(first), indices(len(rows))) {
			t.Fatal("without shuffling the rows come in another order")
		}
		chosen := mustLoader(t, rows, opt)
		chosen.ChooseBudgets(2*chosen.Batches(0), 4)
		if !slices.Equal(rowsOf(checkEpoch(t, chosen, len(rows), 2)), rowsOf(first)) {
			t.Fatal("budgets change the order")
		}
	})
}

// TestGroupsInEvenSteps: steps keep their rows when their batches are made even, also in pieces, and groups stay whole.
func TestGroupsInEvenSteps(t *testing.T) {
	groupVariants(t, func(t *testing.T, rows []Row, opt Options) {
		for _, pieces := range []int{1, 2} {
			if opt.BatchSize%pieces != 0 {
				continue
			}
			even, came := mustLoader(t, rows, opt), mustLoader(t, rows, opt)
			even.Even(4, 50)
			if err := even.Split(pieces); err != nil {
				t.Fatal(err)
			}
			even.ChooseBudgets(even.Batches(0), 3)
			for even.at.epoch == 0 {
				step, _, err := even.NextWindow(4)
				if err != nil {
					t.Fatal(err)
				}
				plain, _, _ := came.NextWindow(4)
				for _, b := range step {
					checkGroups(t, even, b)
				}
				if got, want := rowsOf(step), rowsOf(plain); !reflect.DeepEqual(sorted(got), sorted(want)) {
					t.Fatalf("a step has the rows %v, want %v", got, want)
				}
			}
		}
	})
}

func sorted(rows []int) []int {
	rows = slices.Clone(rows)
	slices.Sort(rows)
	return rows
}

// TestGroupsOverRanks: 1 to 4 ranks deal together what one rank deals, with the same divisors; every group is on one
// rank.
func TestGroupsOverRanks(t *testing.T) {
	groupVariants(t, func(t *testing.T, rows []Row, opt Options) {
		for world := 1; world <= 4; world++ {
			one := mustLoader(t, rows, opt)
			one.Even(2*world, 10)
			var ranks []*Loader
			for rank := range world {
				share, err := one.Shard(rank, world)
				if err != nil {
					t.Fatal(err)
				}
				ranks = append(ranks, share)
			}
			for one.at.epoch < 1 {
				want, divisor, err := one.NextWindow(2 * world)
				if err != nil {
					t.Fatal(err)
				}
				var shares [][]Batch
				for _, l := range ranks {
					share, trained, err := l.NextWindow(2)
					if err != nil || trained != divisor {
						t.Fatalf("divisor %d, want %d: %v", trained, divisor, err)
					}
					shares = append(shares, share)
				}
				if got := interleaved(shares); !reflect.DeepEqual(got, want) {
					t.Fatalf("%d ranks deal the rows %v, want %v", world, rowsOf(got), rowsOf(want))
				}
			}
		}
	})
}

// TestGroupsResume: a cursor in the middle of an epoch goes through JSON and deals the same batches again.
func TestGroupsResume(t *testing.T) {
	groupVariants(t, func(t *testing.T, rows []Row, opt Options) {
		l := mustLoader(t, rows, opt)
		l.Even(2, 10)
		steps := 2*((l.Batches(0)+1)/2) + 1
		states, dealt := make([]State, steps), make([][]Batch, steps)
		for i := range steps {
			states[i] = l.State()
			dealt[i], _, _ = l.NextWindow(2)
		}
		for i := 0; i < steps; i += max(1, steps/5) {
			text, err := json.Marshal(states[i])
			if err != nil {
				t.Fatal(err)
			}
			var s State
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			again := mustLoader(t, rows, opt)
			again.Even(2, 10)
			if err := again.Restore(s); err != nil {
				t.Fatal(err)
			}
			for j := i; j < steps; j++ {
				if step, _, _ := again.NextWindow(2); !reflect.DeepEqual(step, dealt[j]) {
					t.Fatalf("restored at %d: step %d differs", i, j)
				}
			}
		}
		other := slices.Clone(rows)
		for i, r := range other {
			if r.Borders != nil {
				other[i].Borders = r.Borders[1:] // the same tokens in other sequences
				if len(r.Borders) == 1 {
					other[i].Borders = nil
				}
				loose := opt
				loose.Longest = 0
				err := mustLoader(t, other, loose).Restore(l.State())
				if err == nil || !strings.Contains(err.Error(), "the data or the tokenizer has changed") {
					t.Fatalf("rows in other groups: %v", err)
				}
				break
			}
		}
	})
}

// TestEvenCostsOfGroups: the attention of a group is that of its sequences, not of all its tokens.
func TestEvenCostsOfGroups(t *testing.T) {
	rows := Memory{{IDs: make([]int32, 12), Borders: []int32{4, 7}}, {IDs: make([]int32, 12)}}
	opt := Options{T: 12, Longest: 12}
	if got, want := opt.cost(rows, []int32{0}, 10), int64(12*10+4*4+3*3+5*5); got != want {
		t.Errorf("a group of 4, 3 and 5 tokens costs %d, want %d", got, want)
	}
	if got, want := opt.cost(rows, []int32{1}, 10), int64(12*10+12*12); got != want {
		t.Errorf("a row of 12 tokens costs %d, want %d", got, want)
	}
}

// TestGroupsRefused: rows that are no groups, or have no room, are refused with their place.
func TestGroupsRefused(t *testing.T) {
	row := func(n int, borders ...int32) Row {
		return Row{IDs: make([]int32, n), Labels: make([]int32, n), Borders: borders, Source: "d.jsonl", Line: 3}
	}
	many := make([]int32, MaxSequences)
	for i := range many {
		many[i] = int32(i + 1)
	}
	const borders = " of a row of 9 tokens: want them rising, above 0 and below 9"
	for _, c := range []struct {
		row  Row
		opt  Options
		want string
	}{
		{row(9, 4, 4), Options{T: 20}, "sequences begin at the tokens [4 4]" + borders},
		{row(9, 0), Options{T: 20}, "sequences begin at the tokens [0]" + borders},
		{row(9, 9), Options{T: 20}, "sequences begin at the tokens [9]" + borders},
		{row(9, 2), Options{T: 20, Longest: 6}, "sequence 2 of the row has 7 tokens, a sequence has 6"},
		{row(9, 4), Options{T: 8, Longest: 6}, "the 2 sequences of the row have 9 tokens, and room for 8"},
		{row(2000, many...), Options{T: 2000}, "the row has 1025 sequences, more than 1024"},
		{row(9), Options{T: 8}, "the row has 9 tokens, a sequence has 8"},
	} {
		c.opt.BatchSize = 1
		if _, err := NewLoader(Memory{c.row}, c.opt); err == nil || err.Error() != "load batches: d.jsonl:3: "+c.want {
			t.Errorf("got  %v\nwant load batches: d.jsonl:3: %s", err, c.want)
		}
	}
}

// groupFormat is a format of test files: {"group": [[ids], [ids], …], "label": true}.
func groupFormat(t testing.TB) {
	t.Helper()
	Formats["groups"] = Format{
		Roles: []Role{{Name: "group", Keys: []string{"group"}}, {Name: "liked", Keys: []string{"liked"}, Optional: true}},
		Render: func(f Fields, _ Config) (Example, error) {
			raw, _ := f.JSON("group")
			var lists [][]int32
			if err := json.Unmarshal(raw, &lists); err != nil {
				return Example{}, err
			}
			ex := Example{Group: []Example{}}
			for _, ids := range lists {
				ex.Group = append(ex.Group, Example{IDs: ids, Labels: slices.Clone(ids)})
			}
			if f.Present("liked") {
				liked, err := f.truth("liked")
				if err != nil {
					return Example{}, err
				}
				if ex.Desirable = Undesirable; liked {
					ex.Desirable = Desirable
				}
			}
			return ex, nil
		},
	}
	t.Cleanup(func() { delete(Formats, "groups") })
}

// groupLines are rows of a file of groupFormat, the first singles of them of one sequence and without a label.
func groupLines(n, singles int, seed uint64) string {
	r := newRandom(seed)
	var b strings.Builder
	for i := range n {
		group := [][]int32{}
		sequences := 1 + int(r.below(5))
		if i < singles {
			sequences = 1
		}
		for range sequences {
			ids := make([]int32, 2+r.below(30))
			for t := range ids {
				ids[t] = fakeFirst + int32(r.below(200))
			}
			group = append(group, ids)
		}
		text, _ := json.Marshal(group)
		fmt.Fprintf(&b, `{"group": %s`, text)
		if i >= singles && i%3 > 0 {
			fmt.Fprintf(&b, `, "liked": %v`, i%3 == 1)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// TestGroupsInTheCache: groups and labels come out of a cache file, of a temporary file and of memory as they went in.
func TestGroupsInTheCache(t *testing.T) {
	groupFormat(t)
	for _, singles := range []int{0, 1, 700, 5000} {
		dir := t.TempDir()
		path := writeFile(t, dir, "d.jsonl", groupLines(3000, singles, 7))
		cfg := Default()
		cfg.Path, cfg.CacheDir, cfg.MaxLength = path, "", 20
		load := func(note string) *Set {
			set, report, err := Load(context.Background(), cfg, bytesTokenizer{})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(report.CacheNote, note) {
				t.Fatalf("cache: %q, want %q", report.CacheNote, note)
			}
			return set
		}
		memory := load("")
		cfg.CacheDir = filepath.Join(dir, "cache")
		written, read := load("tokens written"), load("tokens read")
		want, several := all(memory.Train), false
		for i, r := range want {
			if several = several || r.Sequences() > 1; i < singles && (r.Sequences() > 1 || r.Desirable != Unlabelled) {
				t.Fatalf("row %d is a group", i)
			}
		}
		if several != (singles < 3000) {
			t.Fatal("the file has other groups than it should")
		}
		for name, set := range map[string]*Set{"written": written, "read": read} {
			if got := all(set.Train); !reflect.DeepEqual(got, want) {
				t.Errorf("%d singles: the rows %s are others", singles, name)
			}
			checkColumns(t, set.Train)
			if known, ok := set.Train.(digested).Digest(); !ok || known != digest(Memory(want)) {
				t.Errorf("%d singles: the digest of the rows %s is %s", singles, name, known)
			}
			if !reflect.DeepEqual(sizesOf(set.Train), sizesOf(Memory(want))) {
				t.Errorf("%d singles: the sizes of the rows %s are others", singles, name)
			}
		}
	}
}

// TestStreamedGroups: a stream deals the groups of a file whole and once, in every layout, over two ranks and from
// the middle on.
func TestStreamedGroups(t *testing.T) {
	groupFormat(t)
	dir := t.TempDir()
	const n = 4400
	cfg := Default()
	cfg.Path, cfg.Streaming, cfg.Seed, cfg.MaxLength = writeFile(t, dir, "d.jsonl", groupLines(n, 0, 3)), true, 3, 32
	for _, how := range []string{"end to end", "packed", "padded"} {
		cfg.Packing, cfg.PadTo = how == "packed", PadNone
		if how == "padded" {
			cfg.PadTo = PadMaxLength
		}
		l := openStreamLoader(t, cfg, 16)
		var ranks []*Loader
		for rank := range 2 {
			share, err := l.Shard(rank, 2)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(share.Close)
			ranks = append(ranks, share)
		}
		seen := map[int]int{}
		var middle State
		var behind []Batch
		for step := 0; l.at.epoch == 0; step++ {
			if step == 20 {
				middle = l.State()
			}
			window, _, err := l.NextWindow(4)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range window {
				checkGroups(t, l, b)
				for _, r := range b.Rows {
					seen[b.of.Row(r).Index]++
				}
			}
			if step >= 20 {
				behind = append(behind, window...)
			}
			var shares [][]Batch
			for _, share := range ranks {
				own, _, err := share.NextWindow(2)
				if err != nil {
					t.Fatal(err)
				}
				shares = append(shares, own)
			}
			for i, b := range interleaved(shares) {
				if !slices.Equal(b.IDs, window[i].IDs) || !slices.Equal(b.Groups, window[i].Groups) {
					t.Fatalf("%s: the ranks deal other batches in step %d", how, step)
				}
			}
		}
		if len(seen) != n {
			t.Fatalf("%s: %d rows, want %d", how, len(seen), n)
		}
		for row, times := range seen {
			if times != 1 {
				t.Fatalf("%s: row %d came %d times", how, row, times)
			}
		}
		again := openStreamLoader(t, cfg, 16)
		if err := again.Restore(middle); err != nil {
			t.Fatal(err)
		}
		for len(behind) > 0 {
			window, _, err := again.NextWindow(4)
			if err != nil {
				t.Fatal(err)
			}
			for i, b := range window {
				was := behind[i]
				if !slices.Equal(b.IDs, was.IDs) || !slices.Equal(b.CuSeqlens, was.CuSeqlens) ||
					!slices.Equal(b.Desirable, was.Desirable) {
					t.Fatalf("%s: resumed, other batches come", how)
				}
			}
			behind = behind[len(window):]
		}
	}
}

// TestStreamOfGrowingGroups: a group larger than those that the run was planned for is an error with its place.
func TestStreamOfGrowingGroups(t *testing.T) {
	groupFormat(t)
	cfg := Default()
	path := writeFile(t, t.TempDir(), "d.jsonl", groupLines(5000, 4990, 3))
	cfg.Path, cfg.Streaming, cfg.MaxLength = path, true, 32
	l := openStreamLoader(t, cfg, 8)
	for {
		_, _, err := l.NextWindow(4)
		if err == nil {
			continue
		}
		want := " sequences, and the first rows of the stream have at most 1: name a file of the larger rows first"
		if !strings.HasPrefix(err.Error(), path+":49") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v", err)
		}
		return
	}
}

// TestGroupsOfASet: the loaders of a set have room for its largest group in every layout, and shortened packed
// sequences and packed evaluation keep groups whole.
func TestGroupsOfASet(t *testing.T) {
	groupFormat(t)
	for _, n := range []int{9, 700} {
		for _, how := range []string{"end to end", "packed", "padded"} {
			cfg := Default()
			cfg.Path, cfg.MaxLength, cfg.ValSplit, cfg.Packing = "d.jsonl", 24, 0.3, how == "packed"
			if how == "padded" {
				cfg.PadTo = PadMaxLength
			}
			fsys := fstest.MapFS{"d.jsonl": {Data: []byte(groupLines(n, 0, 5))}}
			set, _, err := LoadFS(context.Background(), fsys, cfg, bytesTokenizer{})
			if err != nil {
				t.Fatal(err)
			}
			train, err := set.TrainLoader(4)
			if err != nil {
				t.Fatal(err)
			}
			if longest := train.Shape().Longest; longest > 24 {
				t.Errorf("%s: segments of %d tokens, max_length is 24", how, longest)
			}
			checkEpoch(t, train, set.Train.Len(), 2)
			val, err := set.ValLoader(4, 0)
			if err != nil {
				t.Fatal(err)
			}
			checkEpoch(t, val, set.Val.Len(), 1)
		}
	}
}

// TestSegmentsOfGroupsStayBounded: many groups of short sequences beside long rows fill no packed sequence with more
// segments than CuSeqlens has room for.
func TestSegmentsOfGroupsStayBounded(t *testing.T) {
	var rows []Row
	for i := range 500 {
		row := Row{Index: i, Line: i + 1, Source: "made", IDs: make([]int32, 60)}
		if i >= 200 {
			row.IDs, row.Borders = make([]int32, 10), []int32{2, 4, 6, 8}
		}
		for at := range row.IDs {
			row.IDs[at] = int32(1000*(i+1) + at)
		}
		row.Labels = slices.Clone(row.IDs)
		row.Labels[0] = Ignore
		for _, border := range row.Borders {
			row.Labels[border] = Ignore
		}
		rows = append(rows, row)
	}
	l := mustLoader(t, rows, Options{BatchSize: 1, T: 512, Seed: 1, Packing: true})
	if most := l.most; most >= 512/2 {
		t.Fatalf("the bound of %d segments bounds nothing", most)
	}
	checkEpoch(t, l, len(rows), 1)
}
