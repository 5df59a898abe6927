package backfill

import "slices"

// Drop forgets a lane: it has nothing, and nothing is read for it.
func (m *Merge) Drop(lane string) {
	for _, j := range slices.Clone(m.parts) {
		m.leaveParts(lane, j.dataset, Truncate)
	}
	delete(m.seeded, lane)
	delete(m.ahead, lane)
	m.dirty = true
	m.jobs = slices.DeleteFunc(m.jobs, func(j *job) bool {
		j.lanes = slices.DeleteFunc(slices.Clone(j.lanes), func(l string) bool { return l == lane })
		if len(j.lanes) == 0 {
			j.epoch++
		}
		return len(j.lanes) == 0
	})
}

// Filling reports whether a backfill of the dataset is open in the lane, and nothing keeps it from being completed.
func (m *Merge) Filling(lane, dataset string) bool {
	j := m.find(lane, dataset)
	return j != nil && !j.failed
}

// FillingAny reports whether any backfill is open in the lane that nothing keeps from being completed.
func (m *Merge) FillingAny(lane string) bool {
	return slices.ContainsFunc(m.jobs, func(j *job) bool { return !j.failed && slices.Contains(j.lanes, lane) })
}
