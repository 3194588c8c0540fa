package listen

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// start serves with a bound of so many connections; /wait answers when release is closed.
func start(t *testing.T, most int) (address string, release chan struct{}) {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	release = make(chan struct{})
	l := Bound(raw, most)
	s := &http.Server{ConnState: l.State, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-release
		}
		fmt.Fprint(w, "ok")
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return raw.Addr().String(), release
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func ask(c net.Conn, path string) (string, error) {
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// gone reports whether a connection was closed by the other side.
func gone(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return err != nil && !strings.Contains(err.Error(), "timeout")
}

// TestIdleConnectionsMakeRoom: the connection that has been idle longest is closed for the next, and no other.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	address, _ := start(t, 3)
	var idle []net.Conn
	for range 3 {
		c := dial(t, address)
		if got, err := ask(c, "/"); got != "ok" {
			t.Fatal(got, err)
		}
		idle = append(idle, c)
		time.Sleep(20 * time.Millisecond)
	}
	if got, err := ask(dial(t, address), "/"); got != "ok" {
		t.Fatalf("one more: %q, %v", got, err)
	}
	if !gone(idle[0]) || gone(idle[1]) || gone(idle[2]) {
		t.Error("not the connection that was idle longest is closed")
	}
	if got, err := ask(idle[2], "/"); got != "ok" {
		t.Errorf("a connection that stayed: %q, %v", got, err)
	}
}

// TestBusyConnectionsStay: a connection with a request is never closed for another, which waits for a place.
func TestBusyConnectionsStay(t *testing.T) {
	address, release := start(t, 2)
	answers := make(chan string, 3)
	for i, path := range []string{"/wait", "/wait", "/"} {
		c := dial(t, address)
		go func() {
			got, err := ask(c, path)
			answers <- fmt.Sprint(path, got, err)
		}()
		time.Sleep(time.Duration(50*(1-i/2)) * time.Millisecond)
	}
	select {
	case a := <-answers:
		t.Errorf("%s came while both places were taken", a)
	case <-time.After(300 * time.Millisecond):
	}
	close(release)
	for range 3 {
		if a := <-answers; !strings.HasSuffix(a, "ok<nil>") {
			t.Error(a)
		}
	}
}

// TestSilentConnectionsMakeRoom: connections that never send anything are closed for others after a moment.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	address, _ := start(t, 4)
	for range 20 {
		dial(t, address)
	}
	start := time.Now()
	if got, err := ask(dial(t, address), "/"); got != "ok" {
		t.Errorf("%q, %v after %v", got, err, time.Since(start))
	}
}

// TestCloseEndsAccept: a connection that waits for a place does not hold up the end of a server.
func TestCloseEndsAccept(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Bound(raw, 1)
	dial(t, raw.Addr().String())
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	dial(t, raw.Addr().String())
	go func() { _, err := l.Accept(); ended <- err }()
	time.Sleep(50 * time.Millisecond)
	_ = l.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a connection was accepted")
		}
	case <-time.After(5 * time.Second):
		t.Error("Accept does not end")
	}
}
