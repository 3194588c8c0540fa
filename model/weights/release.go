package weights

// Release tells the system that a mapped tensor's bytes are not needed soon, so that they no longer count as this
// process's memory; they are read from the file again where they are. Where nothing is mapped it does nothing.
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
