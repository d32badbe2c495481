import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { At } from '#functions/at'
import { Memcached, memcached } from '#functions/memcached'
import { type KubeClient, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { Pod } from '#sdk'
import { startTestNats } from '../../support/servers.ts'
import { cpuMsOf, forgetPeakOf, peakMiBOf, residentMiBOf } from '../../support/usage.ts'
import { Edits } from '../edits.ts'
import { requestsTo } from '../requests.ts'
import type { OperatorProcess } from './process.ts'
import type { Place, Side } from './sides.ts'

const AT_ONCE = 16
const LOOK_MS = 500
/** The share of a core below which a process counts as idle. */
const CALM_SHARE = 0.05
const LONGEST_CALM_MS = 30_000
const LONGEST_START_MS = 120_000
const WARM_EDITS = 30
const RESTART_MS = 3000

/** What one object has cost, of a scene. */
export type Figures = Record<string, number>

/** One process of a side, from its start through all scenes, with a namespace and a nats-server of its own. */
export class Life implements AsyncDisposable {
  readonly side: Side
  readonly place: Place
  readonly edits: Edits
  readonly #nats: Awaited<ReturnType<typeof startTestNats>> | undefined
  readonly #start: (place: Place) => Promise<OperatorProcess>
  #process: OperatorProcess | undefined

  private constructor(
    side: Side,
    place: Place,
    nats: Awaited<ReturnType<typeof startTestNats>> | undefined,
    start: (place: Place) => Promise<OperatorProcess>,
  ) {
    this.side = side
    this.place = place
    this.edits = new Edits(place.kube, { namespace: place.namespace, name: 'bench' })
    this.#nats = nats
    this.#start = start
  }

  static async begin(
    side: Side,
    start: (place: Place) => Promise<OperatorProcess>,
    place: Omit<Place, 'natsUrl'>,
  ): Promise<Life> {
    const { kube, namespace } = place
    await kube.create('/api/v1/namespaces', { metadata: { name: namespace } })
    await kube.create(`/api/v1/namespaces/${namespace}/serviceaccounts`, { metadata: { name: 'default' } })
    await kube.create(
      resourcePath(memcached.for, namespace),
      Memcached.of({ metadata: { name: 'bench' }, spec: { size: 1, image: 'memcached:1.6' } }),
    )
    const nats = side === 'Fairlead' ? await startTestNats() : undefined
    const life = new Life(side, { ...place, natsUrl: nats?.url ?? '' }, nats, start)
    life.#process = await start(life.place)
    await life.edits.times(WARM_EDITS, LONGEST_START_MS)
    await life.calm()
    return life
  }

  get kube(): KubeClient {
    return this.place.kube
  }

  get namespace(): string {
    return this.place.namespace
  }

  get pid(): number {
    return this.#process?.pid ?? 0
  }

  get natsPid(): number | undefined {
    return this.#nats?.processes.get(this.#nats.names[0] ?? '')?.pid
  }

  /** kill -9, and a new process some seconds later, as a kubelet would start it. */
  async crash(): Promise<void> {
    this.#process?.kill('SIGKILL')
    await this.#process?.exited
    await sleep(RESTART_MS)
    this.#process = await this.#start(this.place)
  }

  /** Resolves when the process and its server have nothing to do any more. */
  async calm(): Promise<void> {
    const end = performance.now() + LONGEST_CALM_MS
    for (let calm = 0; calm < 3 && performance.now() < end; ) {
      const before = this.#cpuMs()
      await sleep(LOOK_MS)
      calm = this.#cpuMs() - before <= CALM_SHARE * LOOK_MS ? calm + 1 : 0
    }
  }

  /**
   * What `act` costs for each of so many objects, until the process is calm again. `own`: requests of the bench itself.
   */
  async measured(objects: number, own: number, act: () => Promise<Figures>): Promise<Figures> {
    forgetPeakOf(this.pid)
    const before = { requests: await requestsTo(this.kube), cpu: cpuMsOf(this.pid), nats: this.#natsCpuMs() }
    const found = await act()
    await this.calm()
    const requests = (await requestsTo(this.kube)) - before.requests - own
    const nats = this.#natsCpuMs() - before.nats
    return {
      ...found,
      requests: requests / objects,
      cpuMs: (cpuMsOf(this.pid) - before.cpu) / objects,
      ...(this.natsPid !== undefined && { natsCpuMs: nats / objects }),
      peakMiB: peakMiBOf(this.pid),
      afterMiB: residentMiBOf(this.pid),
    }
  }

  /** Ats and their pods go, as the garbage collector would remove them. */
  async wipe(): Promise<void> {
    for (const ref of [At, Pod]) {
      for (;;) {
        const names: string[] = []
        for await (const { items } of this.kube.list<KubeObject>(resourcePath(ref, this.namespace)))
          names.push(...items.map(({ metadata }) => metadata.name))
        if (names.length === 0) break
        await forEachAtMost(AT_ONCE, names, async (name) => {
          const gone = this.kube.delete(resourcePath(ref, this.namespace, name), { gracePeriodSeconds: 0 })
          await gone.catch(() => undefined)
        })
      }
    }
    await this.calm()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process?.kill('SIGKILL')
    await this.#process?.exited
    await this.#nats?.[Symbol.asyncDispose]()
  }

  #natsCpuMs(): number {
    return this.natsPid === undefined ? 0 : cpuMsOf(this.natsPid)
  }

  #cpuMs(): number {
    return cpuMsOf(this.pid) + this.#natsCpuMs()
  }
}
