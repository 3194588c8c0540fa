package weights

// Release tells the system that a mapped tensor's bytes are not needed soon, so that they no longer count as this
// process's memory; the next access reads them from the file again. It has no effect on memory that is not mapped.
func (s *Set) Release(t Tensor) {
	for _, f := range s.files {
		f.release(t.Data)
	}
}

func (f *File) release(data []byte) {
	if f.unmap != nil && len(data) > 0 {
		release(f.data, data)
	}
}
