package connectortest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// recorder is a testing.TB that notes failures instead of failing, so that tests of the kit can show what it catches.
type recorder struct {
	testing.TB
	name string

	mu       *sync.Mutex
	failures *[]string
}

// record runs f under a recorder and returns what failed: the sub-test's name and the message.
func recordFailures(t *testing.T, f func(t testing.TB)) []string {
	r := &recorder{TB: t, mu: new(sync.Mutex), failures: new([]string)}
	r.Run("", f)
	return *r.failures
}

func (r *recorder) Run(name string, f func(testing.TB)) bool {
	sub := &recorder{TB: r.TB, name: strings.Trim(r.name+"/"+name, "/"), mu: r.mu, failures: r.failures}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil && p != stopped {
				sub.note(fmt.Sprint("panic: ", p))
			}
		}()
		f(sub)
	}()
	<-done
	return true
}

func (r *recorder) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.failures = append(*r.failures, r.name+": "+s)
}

func (r *recorder) Helper()                      {}
func (r *recorder) Error(args ...any)            { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.note(fmt.Sprint(args...)); r.exit() }
func (r *recorder) Fatalf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)); r.exit() }
func (r *recorder) Failed() bool                 { r.mu.Lock(); defer r.mu.Unlock(); return len(*r.failures) > 0 }
func (r *recorder) exit()                        { panic(stopped) }

// stopped ends a recorded test, as FailNow ends a real one.
const stopped = "stopped"
