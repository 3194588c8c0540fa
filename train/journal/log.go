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

// Bounds of a log. One that grows beyond mostLog loses its middle: its beginning and its end stay.
const (
	mostLine = 8 << 10
	headLog  = 1 << 20
	tailLog  = 3 << 20
)

// mostLog is the most bytes of a log; tests have less.
var mostLog int64 = 8 << 20

// Every start of a run begins with a line that starts so. It also tells our logs from other files of this name.
const markStart = "===== started "

// mark is a line that separates one start of a run from the next.
func mark(what string, at time.Time, more string) string {
	return fmt.Sprintf("===== %s %s, %s =====\n", what, at.Format("2006-01-02 15:04:05 UTC"), safetext.Line(strings.TrimRight(more, ", "), 200))
}

// log is the file. The zero log drops what it is given.
type log struct {
	file  *os.File
	path  string
	size  int64
	lost  int    // lines that could not be written
	begun []byte // a line whose end has not come
}

// open opens a log to add to it. A file of that name that no run wrote is an error, and stays as it is.
func (l *log) open(path string) error {
	if info, err := os.Lstat(path); err == nil {
		for _, f := range []*os.File{os.Stdout, os.Stderr} { // the shell writes there already
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
		f.Close() //nolint:errcheck // nothing was written
		return err
	}
	l.file, l.path, l.size = f, path, info.Size()
	if l.size > 0 {
		l.write([]byte("\n"))
	}
	return nil
}

// line adds a line as it is.
func (l *log) line(text string) { l.write([]byte(text)) }

// lines adds lines, each with its time, without secrets and control characters. A line may come in several calls.
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

// write adds text to the file. What has no room is dropped, and counted.
func (l *log) write(p []byte) {
	if l.file == nil {
		return
	}
	if l.size+int64(len(p)) > mostLog {
		l.shorten()
	}
	if l.file == nil || l.size > 2*mostLog { // it could not be shortened
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

// leftOut begins the line that stands for the middle of a log.
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
	var before int64 // left out by earlier times
	if at := bytes.LastIndex(begin, []byte("\n"+leftOut)); at >= 0 {
		fmt.Sscanf(string(begin[at+1:]), leftOut+"%d", &before) //nolint:errcheck // then it counts as 0
		begin = begin[:at+1]
	} else {
		begin = begin[:bytes.LastIndexByte(begin[:max(0, len(begin)-256)], '\n')+1] // with room for the line below
	}
	end = end[bytes.IndexByte(end, '\n')+1:]
	left := l.size - int64(len(begin)+len(end)) + before
	between := fmt.Sprintf(leftOut+"%d bytes: a log keeps its beginning and its end)\n", left)
	debug.SetCrashOutput(nil, debug.CrashOptions{})                     //nolint:errcheck // it is set again below
	l.file.Close()                                                      //nolint:errcheck // Windows replaces no open file
	atomicfile.Write(l.path, append(append(begin, between...), end...)) //nolint:errcheck // then it stays as it was
	if l.file, err = atomicfile.Append(l.path, 0o644); err != nil {     // it was replaced by something else
		l.file = nil
		return
	}
	if info, err := l.file.Stat(); err == nil {
		l.size = info.Size()
	}
	debug.SetCrashOutput(l.file, debug.CrashOptions{}) //nolint:errcheck // the trace goes to the terminal too
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

// close makes the log durable and gives it back.
func (l *log) close() {
	if len(l.begun) > 0 {
		l.lines([]byte("\n"))
	}
	if l.file != nil {
		l.file.Sync()  //nolint:errcheck // a log ends no run
		l.file.Close() //nolint:errcheck // likewise
		l.file = nil
	}
}

// Tail returns the end of a folder's log, at most so many bytes, in whole lines; "" where there is none.
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

// Crash returns the line of a log's end that says what a process crashed with, "" where it says nothing of the kind:
// the Go runtime writes its trace there. Only the newest start counts.
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
