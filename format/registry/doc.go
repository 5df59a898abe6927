// Package registry asks a schema registry: Confluent's, and those that speak its protocol (Apicurio, Karapace, Redpanda).
//
// A [Client] finds schemas by the ids that messages carry, which never change and are remembered, and registers those of what is
// written. [Split] takes a message apart into id and content: the id stands in front of the content, behind a zero byte, or in a header.
//
// It is the one package of formats that talks to a server; every call has a context and a time limit.
package registry
