package connector

import (
	"errors"
	"fmt"
)

// Validate checks a start request before any I/O: a resume names a nonzero attempt and its position, an initialised start a
// position and no attempt, an initial one neither.
func (s SourceStart) Validate() error {
	if err := s.From.validate(); err != nil {
		return &Error{Class: ClassConfig, Doing: "starting a source", Err: err}
	}
	return nil
}

func (f From) validate() error {
	zero := f.Position.Zero()
	switch f.Origin {
	case Initial:
		if f.Attempt != 0 || !zero {
			return errors.New("an initial start has neither attempt nor position")
		}
	case Initialised:
		if f.Attempt != 0 || zero {
			return errors.New("an initialised start has a position and no attempt")
		}
	case Resume:
		if f.Attempt == 0 || zero {
			return errors.New("a resume needs the position and the nonzero attempt that saved it")
		}
	default:
		return fmt.Errorf("unknown origin %d", f.Origin)
	}
	return nil
}
