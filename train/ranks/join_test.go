package ranks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// joinEach joins every place on its own, and returns what each got.
func joinEach(t *testing.T, o []Options, places ...Place) ([][]Group, []error) {
	t.Helper()
	groups, errs := make([][]Group, len(places)), make([]error, len(places))
	var wait sync.WaitGroup
	for i, p := range places {
		wait.Go(func() {
			if groups[i], errs[i] = Join(context.Background(), p, o[i]); errs[i] == nil {
				t.Cleanup(func() { groups[i][0].Leave(errors.New("over")) }) //nolint:errcheck // it may have
			}
		})
	}
	wait.Wait()
	return groups, errs
}

func TestJoinRefuses(t *testing.T) {
	good := Options{Ranks: 1, Version: "v1", Timeout: patience, Wait: 700 * time.Millisecond, Key: []byte("k")}
	for _, c := range []struct {
		name   string
		change func(p *Place, o *Options) // of the second of two processes
		second string                     // in its error
		first  string                     // in that of rank 0
	}{
		{"program", func(_ *Place, o *Options) { o.Version = "v2" }, `rank 0 refuses: process 1 of 2 is program "v2", and rank 0 is "v1"`, `is program "v2"`},
		{"world", func(p *Place, _ *Options) { p.World = 3 }, "process 1 of 3 has come, and rank 0 is of 2 processes", "process 1 of 3 has come"},
		{"rank", func(p *Place, _ *Options) { p.World, p.Rank = 2, 7 }, "process 7 of 2 with 1 ranks has come: wants a number from 1 to 1", "process 7 of 2"},
		{"start", func(p *Place, _ *Options) { p.Run = "b" }, `process 1 of 2 belongs to the start "b", and this is "a"`, "number 1 of 2 processes did not come"},
		{"key", func(_ *Place, o *Options) { o.Key = []byte("other") }, "TRAINER_RANKS_KEY differs from rank 0's", "did not come"},
		{"no key", func(_ *Place, o *Options) { o.Key = nil }, "TRAINER_RANKS_KEY differs from rank 0's", "did not come"},
		{"absent", func(p *Place, _ *Options) { p.Coordinator = "127.0.0.1:1" }, "no rank 0 at 127.0.0.1:1 within 700ms", "did not come"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := freePort(t)
			p := []Place{{World: 2, LocalWorld: 2, Coordinator: at, Run: "a"}, {Rank: 1, World: 2, LocalWorld: 2, Coordinator: at, Run: "a"}}
			o := []Options{good, good}
			c.change(&p[1], &o[1])
			_, errs := joinEach(t, o, p...)
			for i, want := range []string{c.first, c.second} {
				if errs[i] == nil || !strings.Contains(errs[i].Error(), want) {
					t.Errorf("process %d: %v; want %s", i, errs[i], want)
				}
			}
		})
	}
	t.Run("twice the same", func(t *testing.T) {
		t.Parallel()
		at := freePort(t)
		p := Place{Rank: 1, World: 3, LocalWorld: 3, Coordinator: at, Run: "a"}
		_, errs := joinEach(t, []Options{good, good, good}, Place{World: 3, LocalWorld: 3, Coordinator: at, Run: "a"}, p, p)
		for i, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "process 1 of 3 has come twice") {
				t.Errorf("process %d: %v", i, err)
			}
		}
	})
	t.Run("one goes before all have come", func(t *testing.T) {
		t.Parallel()
		at := freePort(t)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(500*time.Millisecond, cancel)
		var first error
		var wait sync.WaitGroup
		long := good
		long.Wait = patience
		wait.Go(func() {
			_, first = Join(context.Background(), Place{World: 3, LocalWorld: 3, Coordinator: at, Run: "a"}, long)
		})
		if _, err := Join(ctx, Place{Rank: 1, World: 3, LocalWorld: 3, Coordinator: at, Run: "a"}, long); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		wait.Wait()
		if first == nil || !strings.Contains(first.Error(), "process 1 of 3 ended before all had come") {
			t.Error(first)
		}
	})
	t.Run("one cannot take part", func(t *testing.T) {
		t.Parallel()
		for bad := range 3 {
			at := freePort(t)
			errs := make([]error, 3)
			var wait sync.WaitGroup
			for i := range 3 {
				wait.Go(func() {
					p, long := Place{Rank: i, World: 3, LocalWorld: 3, Coordinator: at, Run: "a"}, good
					if long.Wait = patience; i == bad {
						Report(context.Background(), p, long, errors.New("no such file"))
						return
					}
					var groups []Group
					if groups, errs[i] = Join(context.Background(), p, long); errs[i] == nil {
						<-groups[0].Lost()
						errs[i] = groups[0].Err()
						groups[0].Leave(errs[i]) //nolint:errcheck // it is lost
					}
				})
			}
			wait.Wait()
			for i, err := range errs {
				if i != bad && (err == nil || !strings.Contains(err.Error(), "no such file") || !strings.Contains(err.Error(), fmt.Sprint(bad))) {
					t.Errorf("process %d, where %d cannot: %v", i, bad, err)
				}
			}
		}
	})
	t.Run("the port is taken", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		short := good
		short.Timeout = 400 * time.Millisecond
		_, err = Join(context.Background(), Place{World: 2, LocalWorld: 2, Coordinator: l.Addr().String()}, short)
		if err == nil || !strings.Contains(err.Error(), "address already in use; TRAINER_COORDINATOR=HOST:PORT names another port") {
			t.Error(err)
		}
	})
}

// Strangers are turned away and told of, and the run begins without harm.
func TestStrangers(t *testing.T) {
	at := freePort(t)
	var mu sync.Mutex
	var said []string
	o := Options{Ranks: 1, Timeout: patience, Wait: patience, Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
	}}
	done := make(chan error, 1)
	go func() {
		groups, err := Join(context.Background(), Place{World: 2, LocalWorld: 2, Coordinator: at, Run: "a"}, o)
		if err == nil {
			err = groups[0].Leave(nil)
		}
		done <- err
	}()
	hello, _ := frame{kind: kindHello, data: make([]byte, maxGreeting)}.header()
	for _, garbage := range []string{
		"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01", magic, magic + "\xff\xff\xff\xff", magic + string(hello[:16]) + "\xff\xff\xff\xff",
		magic + string(hello) + strings.Repeat("{", maxGreeting), magic + strings.Repeat("\x01", 100),
	} {
		var conn net.Conn
		var err error
		for range 100 {
			if conn, err = net.Dial("tcp", at); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, garbage)    //nolint:errcheck // it may be turned away before
		conn.(*net.TCPConn).CloseWrite() //nolint:errcheck // as above
		got, err := io.ReadAll(conn)     // until it is turned away
		if err == nil && len(got) > 0 {
			t.Errorf("%.20q is answered with %q", garbage, got)
		}
		conn.Close()
	}
	groups, err := Join(context.Background(), Place{Rank: 1, World: 2, LocalWorld: 2, Coordinator: at, Run: "a"}, Options{Ranks: 1, Timeout: patience, Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	groups[0].Leave(nil) //nolint:errcheck // below
	if err := <-done; err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(said, "\n"); !strings.Contains(all, `it is no process of a run: its first bytes are "GET / HT"`) {
		t.Errorf("said %q", all)
	}
}

// What a process of the run sends against the protocol ends the run, and says whose it was.
func TestBrokenProcess(t *testing.T) {
	for _, c := range []struct {
		name string
		send frame
		want string
	}{
		{"another's rank", frame{kind: kindPart, rank: 0, seq: 1, what: "gradients"}, "speaks for rank 0"},
		{"no such rank", frame{kind: kindPart, rank: 60000, seq: 1}, "speaks for rank 60000"},
		{"a message of the coordinator", frame{kind: kindResult, data: []byte{1}}, "sent a message of kind"},
		{"what it is doing", frame{kind: kindBeat, data: []byte{1, 2, 3}}, "cannot be read"},
		{"twice", frame{kind: kindPart, rank: 1, seq: 0, what: "x"}, "out of step"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := flat(joinAll(t, Options{Timeout: patience}, nil, 1, 1))
			way := all[1].(*participant).s.way.(*spoke)
			way.link.send(c.send)
			way.link.send(c.send)
			lostTo(t, all[:1], nil, "rank 1", c.want)
		})
	}
	t.Run("the coordinator", func(t *testing.T) {
		t.Parallel()
		for want, f := range map[string]frame{"read a result": {kind: kindResult, data: []byte{9, 9}}, "counts the ranks wrong": {kind: kindStart, data: []byte("[1,1]")}, "a message of kind 8": {kind: kindPart}} {
			all := flat(joinAll(t, Options{Timeout: patience}, nil, 1, 1))
			all[0].(*participant).s.way.(*hub).links[1].send(f)
			lostTo(t, all[1:], nil, "rank 0", want)
		}
	})
}

func FuzzFrame(f *testing.F) {
	whole, _ := frame{kind: kindPart, rank: 3, seq: 7, what: "gradients", data: []byte("abc")}.header()
	f.Add(append(whole, "abc"...))
	f.Add(packStatus([]status{{1, 2, "save", time.Second}, {3, 4, "", 0}}))
	parts, _ := packParts([][]byte{{1}, nil, {2, 3}})
	f.Add(parts)
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := readFrame(bytes.NewReader(b), kindHello, kinds-1); err == nil {
			head, err := got.header()
			if err != nil || !bytes.HasPrefix(b, append(head, got.data...)) {
				t.Fatalf("%+v is not what was read: %v", got, err)
			}
		}
		if got, err := unpackStatus(b); err == nil && len(packStatus(got)) > 2*len(b) {
			t.Fatal("it grows")
		}
		if got, err := unpackParts(b, 3); err == nil {
			if again, err := packParts(got); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%v is not what was read: %v", got, err)
			}
		}
		if e := decodeLost(b); e != nil && len(e.Error()) > 5000 {
			t.Fatal("an error without end")
		}
	})
}

// FuzzStranger: whatever a stranger sends, it is not taken for a process of a run whose key it does not know, nothing panics,
// and the handshake ends.
func FuzzStranger(f *testing.F) {
	said, _ := json.Marshal(hello{Version: "v", World: 2, Rank: 1, Ranks: 1, Nonce: make([]byte, 32)})
	frames := func(all ...frame) []byte {
		b := []byte(magic)
		for _, x := range all {
			head, err := x.header()
			if err != nil {
				f.Fatal(err)
			}
			b = append(append(b, head...), x.data...)
		}
		return b
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(frames(frame{kind: kindHello, data: said}))
	f.Add(frames(frame{kind: kindHello, data: said}, frame{kind: kindProof, data: proof(nil, "process", make([]byte, 32), said)}))
	f.Add(frames(frame{kind: kindHello, data: []byte(`{"World":1e99,"Nonce":"AA=="}`)}, frame{kind: kindProof}))
	f.Add(frames(frame{kind: kindStart}, frame{kind: kindLost}))
	f.Fuzz(func(t *testing.T, b []byte) {
		here, there := net.Pipe()
		go func() {
			go io.Copy(io.Discard, there) //nolint:errcheck // what is answered says nothing
			there.Write(b)                //nolint:errcheck // it may be turned away before the end
			there.Close()                 //nolint:errcheck
		}()
		they, err := receive(here, []byte("secret"), func(hello) *refusal {
			t.Error("it was taken for a process that knows the key")
			return nil
		})
		if err == nil {
			t.Errorf("%+v was let in by %q", they, b)
		}
		here.Close() //nolint:errcheck
	})
}
