package live

import (
	"net/http"
	"path/filepath"

	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/session"
)

// about saves the title, the group and the note that a person wrote about a run.
func (s *Server) about(_ *http.Request, q request) (any, error) {
	r, err := s.owned(q.ID)
	if err != nil {
		return nil, err
	}
	if err := runs.WriteAbout(r.Dir, runs.About{Title: q.Title, Group: q.Group, Note: q.Note}); err != nil {
		return nil, failure{http.StatusUnprocessableEntity, err.Error()}
	}
	return struct{}{}, nil
}

// size returns the size of a run's folder, for the confirmation before its deletion.
func (s *Server) size(_ http.ResponseWriter, r *http.Request) (any, error) {
	run, err := s.owned(r.FormValue("id"))
	if err != nil {
		return nil, err
	}
	bytes, checkpoints, err := runs.Deletable(run.Dir)
	if err != nil {
		return nil, failure{http.StatusConflict, err.Error()}
	}
	return struct {
		Dir         string `json:"dir"`
		Name        string `json:"name"` // name of the folder, which a deletion must repeat
		Bytes       string `json:"bytes"`
		Checkpoints int    `json:"checkpoints"`
	}{run.Dir, filepath.Base(run.Dir), session.FormatBytes(bytes), checkpoints}, nil
}

// delete deletes a run's folder. The request repeats the folder's name, so that a wrong id deletes nothing.
func (s *Server) delete(_ *http.Request, q request) (any, error) {
	run, err := s.owned(q.ID)
	if err != nil {
		return nil, err
	}
	if q.Value != filepath.Base(run.Dir) {
		return nil, refuse(http.StatusConflict, "the folder is called %q, not %q: nothing is deleted", filepath.Base(run.Dir), short(q.Value))
	}
	if s.o.Queue != nil {
		entries, err := s.o.Queue.List()
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if (e.State == queue.Waiting || e.State == queue.Running) && e.OutputDir == run.Dir {
				return nil, refuse(http.StatusConflict, "%s is in the queue (%s): take it out or stop it first", run.Name, e.State)
			}
		}
	}
	if err := runs.Delete(run.Dir); err != nil {
		return nil, failure{http.StatusConflict, err.Error()}
	}
	s.hub.rescan()
	return struct{}{}, nil
}

// owned returns a run whose folder this page may change: it lies inside the roots, also after links are resolved, and
// is not a root itself.
func (s *Server) owned(id string) (*runs.Run, error) {
	r, err := s.run(id)
	if err != nil {
		return nil, err
	}
	if !s.hub.within(r.Dir) || s.hub.leaves(r.Dir) {
		return nil, refuse(http.StatusForbidden, "%s is under a link that leads out of what this page shows: change it in a terminal", r.Name)
	}
	return r, nil
}
