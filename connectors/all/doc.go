// Package all registers the bundled connectors by name. It is the only package that imports them all: a connector is taken out by
// deleting its folder and its line here.
package all
