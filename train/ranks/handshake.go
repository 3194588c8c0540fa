package ranks

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// magic is the first thing that a process sends: the protocol and its version.
const magic = "tlranks1"

// handshakeTime bounds a handshake, so that a stranger cannot keep a connection open for longer.
const handshakeTime = 10 * time.Second

// hello describes a process to the coordinator.
type hello struct {
	Version string // version of the program
	Run     string // the launcher's name of this start
	World   int    // number of processes
	Rank    int    // number of this process
	Ranks   int    // number of ranks that it drives
	Nonce   []byte
}

// refusal is the reason why a process may not join. Again means that another attempt may succeed, Ends that the run
// cannot begin without the process.
type refusal struct {
	Why   string
	Again bool
	Ends  bool `json:"-"`
}

func (r *refusal) Error() string { return r.Why }

// errStranger is a connection that does not speak this protocol.
type errStranger struct{ said []byte }

func (e errStranger) Error() string {
	return fmt.Sprintf("it is no process of a run: its first bytes are %q", e.said)
}

// proof shows that its sender knows the key and has seen both nonces.
func proof(key []byte, role string, challenge, hello []byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte(role), challenge, hello} {
		fmt.Fprintf(m, "%d:", len(part))
		m.Write(part)
	}
	return m.Sum(nil)
}

func nonce() []byte {
	b := make([]byte, 32)
	rand.Read(b) // it never fails
	return b
}

func writeFrame(w io.Writer, f frame) error {
	head, err := f.header()
	if err != nil {
		return err
	}
	_, err = w.Write(append(head, f.data...))
	return err
}

// greet is the handshake of a process that has connected to the coordinator.
func greet(c net.Conn, me hello, key []byte) error {
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	me.Nonce = nonce()
	said, err := json.Marshal(me)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c, magic); err != nil {
		return err
	}
	if err := writeFrame(c, frame{kind: kindHello, data: said}); err != nil {
		return err
	}
	challenge, err := answer(c, kindChallenge)
	if err != nil {
		return err
	}
	if err := writeFrame(c, frame{kind: kindProof, data: proof(key, "process", challenge, said)}); err != nil {
		return err
	}
	theirs, err := answer(c, kindWelcome)
	if err != nil {
		return err
	}
	if !hmac.Equal(theirs, proof(key, "coordinator", challenge, said)) {
		return &refusal{Why: fmt.Sprintf("what listens at %v does not know %s", c.RemoteAddr(), KeyVariable)}
	}
	return c.SetDeadline(time.Time{})
}

// answer reads the coordinator's next message, which may be a refusal.
func answer(c net.Conn, want kind) ([]byte, error) {
	f, err := readFrame(c, kindChallenge, kindRefuse)
	if err != nil {
		return nil, fmt.Errorf("what listens at %v does not answer as rank 0 of a run does: %w", c.RemoteAddr(), err)
	}
	if f.kind == kindRefuse {
		r := &refusal{}
		if err := json.Unmarshal(f.data, r); err != nil {
			return nil, errors.New("rank 0 refuses, and its reason cannot be read")
		}
		r.Why = "rank 0 refuses: " + plain(r.Why, 1000)
		return nil, r
	}
	if f.kind != want {
		return nil, fmt.Errorf("what listens at %v answers out of order", c.RemoteAddr())
	}
	return f.data, nil
}

// receive is the coordinator's side of a handshake. check rejects a process that cannot belong to this run.
func receive(c net.Conn, key []byte, check func(hello) *refusal) (hello, error) {
	var they hello
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return they, err
	}
	first := make([]byte, len(magic))
	if n, err := io.ReadFull(c, first); err != nil || string(first) != magic {
		return they, errStranger{first[:n]}
	}
	said, err := readFrame(c, kindHello, kindHello)
	if err != nil {
		return they, err
	}
	if err := json.Unmarshal(said.data, &they); err != nil || len(they.Nonce) != 32 {
		return they, errors.New("its first message cannot be read")
	}
	they.Version, they.Run = plain(they.Version, 200), plain(they.Run, 200)
	challenge := nonce()
	if err := writeFrame(c, frame{kind: kindChallenge, data: challenge}); err != nil {
		return they, err
	}
	theirs, err := readFrame(c, kindProof, kindProof)
	if err != nil {
		return they, err
	}
	refused := &refusal{Why: KeyVariable + " differs from rank 0's"}
	if hmac.Equal(theirs.data, proof(key, "process", challenge, said.data)) {
		refused = check(they)
	}
	if refused != nil {
		why, _ := json.Marshal(refused)
		return they, errors.Join(refused, writeFrame(c, frame{kind: kindRefuse, data: bytes.TrimSpace(why)}))
	}
	if err := writeFrame(c, frame{kind: kindWelcome,
		data: proof(key, "coordinator", challenge, said.data)}); err != nil {
		return they, err
	}
	return they, c.SetDeadline(time.Time{})
}
