package journal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
)

// LogFile is the name of a run's log in its folder.
const LogFile = "train.log"

// Limits of a log. A log that grows beyond mostLog loses its middle; its beginning and its end stay.
const (
	mostLine = 8 << 10
	headLog  = 1 << 20
	tailLog  = 3 << 20
)

// mostLog is the most bytes of a log; tests lower it.
var mostLog int64 = 8 << 20

// markStart begins the first line of every start of a run. It also distinguishes our logs from other files of this
// name.
const markStart = "===== started "

// mark returns a line that separates one start of a run from the next.
func mark(what string, at time.Time, more string) string {
	return fmt.Sprintf("===== %s %s, %s =====\n", what, at.Format("2006-01-02 15:04:05 UTC"),
		safetext.Line(strings.TrimRight(more, ", "), 200))
}

// log is the log file. The zero log discards what is written.
type log struct {
	file  *os.File
	path  string
	size  int64
	lost  int    // lines that could not be written
	begun []byte // a line that is not complete yet
}

// open opens a log for appending. A file of that name that no run wrote is an error, and is left unchanged.
func (l *log) open(path string) error {
	if info, err := os.Lstat(path); err == nil {
		for _, f := range []*os.File{os.Stdout, os.Stderr} { // the shell redirects output to this file already
			if to, err := f.Stat(); err == nil && os.SameFile(to, info) {
				return fmt.Errorf("%s is where this program's output goes", path)
			}
		}
	}
	if err := atomicfile.CheckOwn(path, "a run's log", markStart); err != nil {
		return err
	}
	f, err := atomicfile.Append(path, 0o644)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close() // nothing was written
		return err
	}
	l.file, l.path, l.size = f, path, info.Size()
	if l.size > 0 {
		l.write([]byte("\n"))
	}
	return nil
}

// line adds a line unchanged.
func (l *log) line(text string) { l.write([]byte(text)) }

// lines adds lines, each with its time, without secrets and control characters. A line may arrive in several calls.
func (l *log) lines(p []byte) {
	l.begun = append(l.begun, p...)
	end := bytes.LastIndexByte(l.begun, '\n')
	if end < 0 {
		if len(l.begun) < mostLine {
			return
		}
		l.begun = append(l.begun, '\n')
		end = len(l.begun) - 1
	}
	text := safetext.Plain(safetext.Mask(string(l.begun[:end])))
	l.begun = append([]byte(nil), l.begun[end+1:]...)
	now := time.Now().UTC().Format("2006-01-02 15:04:05 ")
	var b strings.Builder
	for _, one := range strings.Split(text, "\n") {
		b.WriteString(strings.TrimRight(now+cut(one, mostLine), " ") + "\n")
	}
	l.write([]byte(b.String()))
}

// write appends text to the file. Text that does not fit is dropped and counted.
func (l *log) write(p []byte) {
	if l.file == nil {
		return
	}
	if l.size+int64(len(p)) > mostLog {
		l.shorten()
	}
	if l.file == nil || l.size > 2*mostLog { // shortening the file has failed
		l.lost += bytes.Count(p, []byte("\n"))
		return
	}
	lines := bytes.Count(p, []byte("\n"))
	if l.lost > 0 {
		p = append(fmt.Appendf(nil, "(%d lines are left out here: they could not be written)\n", l.lost), p...)
	}
	n, err := l.file.Write(p)
	if err != nil {
		if n > 0 && l.file.Truncate(l.size) != nil {
			l.size += int64(n)
		}
		l.lost += lines
		return
	}
	l.size, l.lost = l.size+int64(n), 0
}

// leftOut begins the line that replaces the middle of a log.
const leftOut = "(left out here: "

// shorten replaces the middle of the log by a line that says so.
func (l *log) shorten() {
	head, tail := min(headLog, mostLog/8), min(tailLog, mostLog*3/8)
	if l.size <= head+tail {
		return
	}
	begin, err := part(l.path, 0, head)
	if err != nil {
		return
	}
	end, err := part(l.path, l.size-tail, tail)
	if err != nil {
		return
	}
	var before int64 // bytes that earlier calls left out
	if at := bytes.LastIndex(begin, []byte("\n"+leftOut)); at >= 0 {
		fmt.Sscanf(string(begin[at+1:]), leftOut+"%d", &before) // on failure it counts as 0
		begin = begin[:at+1]
	} else {
		begin = begin[:bytes.LastIndexByte(begin[:max(0, len(begin)-256)], '\n')+1] // leave space for the line below
	}
	end = end[bytes.IndexByte(end, '\n')+1:]
	left := l.size - int64(len(begin)+len(end)) + before
	between := fmt.Sprintf(leftOut+"%d bytes: a log keeps its beginning and its end)\n", left)
	debug.SetCrashOutput(nil, debug.CrashOptions{})                     // it is set again below
	l.file.Close()                                                      // Windows cannot replace an open file
	atomicfile.Write(l.path, append(append(begin, between...), end...)) // on failure the log stays as it was
	if l.file, err = atomicfile.Append(l.path, 0o644); err != nil {     // another program has replaced it
		l.file = nil
		return
	}
	if info, err := l.file.Stat(); err == nil {
		l.size = info.Size()
	}
	debug.SetCrashOutput(l.file, debug.CrashOptions{}) // the trace is also printed to the terminal
}

// part reads n bytes of a file.
func part(path string, at, n int64) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	return io.ReadAll(io.NewSectionReader(f, at, n))
}

// close syncs and closes the log.
func (l *log) close() {
	if len(l.begun) > 0 {
		l.lines([]byte("\n"))
	}
	if l.file != nil {
		l.file.Sync()  // a log never ends a run
		l.file.Close() // a log never ends a run
		l.file = nil
	}
}

// Tail returns the end of a folder's log in whole lines, at most `most` bytes; "" if there is no log.
func Tail(dir string, most int64) string {
	path := filepath.Join(dir, LogFile)
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	from := max(0, info.Size()-most)
	text, err := part(path, from, most)
	if err != nil {
		return ""
	}
	if from > 0 {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return string(text)
}

// Crash returns the line with which a process crashed from the end of a log, to which the Go runtime writes its trace;
// "" if it did not crash. Only the newest start counts.
func Crash(tail string) string {
	if at := strings.LastIndex(tail, markStart); at >= 0 {
		tail = tail[at:]
	}
	for line := range strings.Lines(tail) {
		for _, begin := range []string{"panic: ", "fatal error: ", "runtime: out of memory", "SIGQUIT: "} {
			if strings.HasPrefix(line, begin) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}
