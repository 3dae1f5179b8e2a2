// Package catalogue holds contracts of real providers, embedded: what each
// promises for one action of one API version, with the sources and the day on
// which they were read. A contract of it is data like any other. It grants
// nothing that its sources do not say: what is not published is unknown, and
// unknown grants no repeat.
//
// None of them was tried against the live provider; docs/catalogue.md says what
// to do before one is put to work.
package catalogue
