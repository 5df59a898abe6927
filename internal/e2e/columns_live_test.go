package e2e_test

import (
	"strings"
	"testing"
	"time"
)

// A target keeps its columns where the policy says so, when they change under a process that is following already.
//
// clause E15, case C038.
func TestColumnsIgnoredLive(t *testing.T) {
	s := newScenario(t, `create table items (id int primary key, a int, b text); insert into items values (1, 1, 'x')`)
	s.same("items")
	s.r.kill()
	s.f.more = []string{"--schema", "public.items=ignore"}
	s.r = s.f.start(t)
	kept := func(want string) {
		t.Helper()
		s.r.until(30*time.Second, want, func() bool {
			return strings.Join(column(s.to, "select to_jsonb(x)::text from items x order by id"), " ") == want
		})
	}
	s.do(`insert into items values (2, 2, 'y')`)
	kept(`{"a": 1, "b": "x", "id": 1} {"a": 2, "b": "y", "id": 2}`)
	s.do(`alter table items add column c int default 7; alter table items drop column b; insert into items values (3, 3, 8)`)
	kept(`{"a": 1, "b": "x", "id": 1} {"a": 2, "b": "y", "id": 2} {"a": 3, "b": null, "id": 3}`)
	s.do(`alter table items add column d int; update items set a = 10 where id = 1`)
	kept(`{"a": 10, "b": "x", "id": 1} {"a": 2, "b": "y", "id": 2} {"a": 3, "b": null, "id": 3}`)
}
