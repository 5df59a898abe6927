package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/leatdata/leat/connector"
)

// wrap makes one clear message of what the operating system or a format said.
func wrap(err error, doing string) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := &connector.Error{Class: connector.ClassPermanent, Code: "file.io", Doing: doing, Err: err}
	if known, ok := errors.AsType[*connector.Error](err); ok {
		e.Class, e.Code, e.Hint = connector.ClassOf(err), known.Code, connector.HintOf(err)
		if e.Class == connector.ClassUnknown {
			e.Class = connector.ClassPermanent
		}
		return e
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		e.Err = at.Err // the path is in what was being done
	}
	e.Code, e.Hint = explain(err)
	switch e.Code {
	case "file.missing", "file.permission", "file.folder": // another path or another right is needed, whatever is tried again
		e.Class = connector.ClassConfig
	}
	return e
}

// explain finds the code of an error and what to type next.
func explain(err error) (code, hint string) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "file.missing", "check the path; patterns with * must be quoted if the shell is not to expand them"
	case errors.Is(err, fs.ErrPermission):
		return "file.permission", "give this user the right to it, with chmod or chown"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "file.disk_full", "free space there, or write to another place; what was begun was removed"
	case errors.Is(err, syscall.EROFS):
		return "file.permission", "the file system is read-only: write to another place"
	case errors.Is(err, syscall.EISDIR):
		return "file.folder", "a slash at the end of the path means the files in the folder"
	case errors.Is(err, syscall.EPIPE):
		return "file.pipe", "the program that read the output ended first"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "file.truncated", "the file breaks off: copy it again, and compare its size with the original"
	}
	return "file.io", "check the disk and the mount"
}

// positionError refuses a position, see clause S4.
func positionError(code, format string, args ...any) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: code, Doing: "resuming the files", Err: fmt.Errorf(format, args...),
		Hint: "put the files back as they were, or forget the position and read from the beginning: leat state reset PIPELINE",
	}
}
