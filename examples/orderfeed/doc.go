// Package orderfeed is a worked example of a connector that is written record by record, with package connector/records: a source over an
// HTTP feed, and a sink that posts to an HTTP ledger. docs/spi.md goes through it.
//
// The feed is a list of numbered lines that only grows:
//
//	GET URL?after=41&limit=500   the lines behind number 41, at most 500, each one JSON object
//	                             header Feed-End: the number of its newest line
//	                             410 Gone: lines behind number 41 are no longer kept
//	DELETE URL?upto=41           lines up to number 41 need not be kept any longer
//
// The ledger takes lines in batches, each all or nothing, together with how far the sender got:
//
//	PUT URL/LANE?fence=7         {"progress":{…}}, then a line for each row; 409 Conflict: an owner with a higher fence was here
//	GET URL/LANE?fence=7         {"progress":{…}} as it was put last, or {}
//
// So a pipeline from one to the other has every line in the ledger exactly once, whatever fails in between.
package orderfeed
