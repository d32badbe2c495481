import type { LookupAddress } from 'node:dns'
import { lookup } from 'node:dns/promises'
import type { LookupFunction } from 'node:net'
import { callbackify } from 'node:util'
import { endedWithin } from '#primitives'

/** A name that had addresses has them again when a look-up takes longer. */
const PATIENCE_MS = 1000

/**
 * Looks up the names of servers for all connections of the process. Node.js makes a few look-ups at a time, and one that no
 * server of DNS answers takes 10 s or more: the names of clusters that are away would delay those of all others. So the
 * connections to one server share a look-up, and a name that had addresses waits for no other one.
 */
export class Lookups {
  readonly #ask: (name: string) => Promise<LookupAddress[]>
  readonly #known = new Map<string, LookupAddress[]>()
  readonly #underWay = new Map<string, Promise<LookupAddress[]>>()

  constructor(ask: (name: string) => Promise<LookupAddress[]> = (name) => lookup(name, { all: true })) {
    this.#ask = ask
  }

  async addressesOf(name: string): Promise<LookupAddress[]> {
    const asking = this.#underWay.get(name) ?? this.#begin(name)
    if (this.#known.has(name)) await endedWithin(PATIENCE_MS, asking)
    return this.#known.get(name) ?? asking
  }

  #begin(name: string): Promise<LookupAddress[]> {
    const found = (addresses: LookupAddress[]) => {
      this.#known.set(name, addresses)
      return addresses
    }
    const failed = (error: NodeJS.ErrnoException) => {
      // No answer says nothing about the name.
      if (error.code !== 'EAI_AGAIN') this.#known.delete(name)
      throw error
    }
    const asking = this.#ask(name)
      .then(found, failed)
      .finally(() => this.#underWay.delete(name))
    this.#underWay.set(name, asking)
    return asking
  }
}

const lookups = new Lookups()

const addressesOf = callbackify((name: string) => lookups.addressesOf(name))

/** The `lookup` of connections. */
export const sharedLookup: LookupFunction = (name, { family, all }, done) =>
  addressesOf(name, (error, addresses) => {
    if (error !== null) return done(error, '')
    const version = family === 'IPv4' ? 4 : family === 'IPv6' ? 6 : family
    const fitting = version ? addresses.filter((one) => one.family === version) : addresses
    const [first] = fitting
    if (all === true) return done(null, fitting)
    if (first !== undefined) return done(null, first.address, first.family)
    return done(Object.assign(new Error(`${name} has no address of this family`), { code: 'ENOTFOUND' }), '')
  })
