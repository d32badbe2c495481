import { type Traffic, useRegisters } from '../soak/etcd/clients.ts'
import { violationOf } from '../soak/etcd/linearizable.ts'
import type { EtcdClusters } from './etcd-clusters.ts'

const CLIENTS = 6
/** How often clients learn of new members. */
const LOOK_MS = 500

/** Clients of an EtcdCluster, of which some know its members and some its Service, until `stop()`. */
export class EtcdTraffic {
  readonly #over = new AbortController()
  readonly #looking: NodeJS.Timeout
  readonly #traffic: Promise<Traffic>
  #members: string[]

  private constructor(look: () => Promise<string[]>, members: string[], service: string, random: () => number) {
    this.#members = members
    this.#looking = setInterval(() => {
      void look().then(
        (found) => (this.#members = found),
        () => undefined,
      )
    }, LOOK_MS)
    const routes = [
      { name: 'members', endpoints: () => this.#members },
      { name: 'Service', endpoints: () => [service] },
    ]
    this.#traffic = useRegisters({ routes, count: CLIENTS, random, signal: this.#over.signal })
  }

  static async start(clusters: EtcdClusters, name: string, random: () => number): Promise<EtcdTraffic> {
    const look = () => clusters.readyUrls(name)
    return new EtcdTraffic(look, await look(), await clusters.serviceUrl(name), random)
  }

  /** What clients saw, and each way in which that was not linearizable. */
  async stop(): Promise<Traffic & { violations: string[] }> {
    clearInterval(this.#looking)
    this.#over.abort()
    const traffic = await this.#traffic
    const violations = [...traffic.history].flatMap(([register, operations]) => {
      const violation = violationOf(operations)
      return violation === undefined ? [] : [`${register}: ${violation}`]
    })
    return { ...traffic, violations }
  }
}
