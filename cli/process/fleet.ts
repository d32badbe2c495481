import { isDeepStrictEqual } from 'node:util'
import type { Logger } from 'pino'
import { Gauge, type Registry } from 'prom-client'
import type { Runnable } from '#contracts'
import { SharedSlots } from '#queue'
import { type ClusterEntry, type ClusterList, configOf } from './clusters.ts'
import type { Config } from './config.ts'
import { oneLine, UsageError } from './exit.ts'
import { KeptCluster } from './kept-cluster.ts'
import { followedConnection } from './kube.ts'
import { followClusters } from './listed-clusters.ts'
import { mergedMetrics, processMetrics } from './metrics.ts'
import { openServed, type ProcessShare, type ServedCluster } from './served-cluster.ts'

export interface FleetDeps {
  /** The file that lists the clusters. It is read again when it changes. */
  file: string
  list: ClusterList
  /** With the name of a cluster, only this one is served. */
  config: Config
  share: ProcessShare
  /** Keys of all clusters that are held at the same time. */
  slots: number
  log: Logger
}

interface Kept {
  entry: ClusterEntry
  cluster: KeptCluster
  stop: AbortController
  ended: Promise<void>
}

/** The indexes of related objects of all clusters have this memory together, and one of them at least the other. */
const INDEX_BYTES = { all: 128 * 2 ** 20, least: 16 * 2 ** 20 }
/** The longest reason in /readyz. It comes from a server or a plugin. */
const REASON_CHARS = 500
/** After a loss of EVENTS all clusters list everything: this many lists at once of all of them, and of one of them. */
const LISTS = { all: 16, least: 2, most: 8 }
/** Room for one large run of each kind, so that no cluster waits for the memory of another. */
const STATE_SHARE = 0.5

/**
 * The clusters of one process. Each has a client, streams, a bridge and a dispatcher of its own, and is kept by itself. They
 * share the CPU, the memory and the slots of the process.
 */
export class Fleet implements Runnable {
  readonly #deps: FleetDeps
  readonly #slots: SharedSlots
  readonly #registry = processMetrics()
  readonly #kept = new Map<string, Kept>()
  /** The names of the clusters that are served, by the UID of the cluster. */
  readonly #claims = new Map<string, string>()

  constructor(deps: FleetDeps) {
    this.#deps = deps
    this.#slots = new SharedSlots(deps.slots)
    this.#gauges()
  }

  /** Serves the clusters of the file until the signal. */
  async run(signal: AbortSignal, graceMs: number): Promise<void> {
    const { file, list, log, config } = this.#deps
    const isChosen = ({ name }: ClusterEntry) => config.cluster === undefined || config.cluster === name
    const changed = (now: readonly ClusterEntry[]) => {
      if (!signal.aborted) this.#update(now.filter(isChosen), signal, graceMs)
    }
    changed(list.clusters)
    await followClusters({ config, file, list }, { log, signal, changed })
    await Promise.all(Array.from(this.#kept.values(), ({ ended }) => ended))
  }

  /** Undefined: the cluster is not served now. */
  served(name: string): ServedCluster | undefined {
    return this.#kept.get(name)?.cluster.served
  }

  /** The calls of functions that had not ended after run(). */
  calls(): KeptCluster['calls'] {
    return Array.from(this.#kept.values(), ({ cluster }) => cluster.calls).flat()
  }

  /** The reasons why the whole process does not work: NATS, or no cluster is served. */
  troubles(): string[] {
    const open = this.#open
    if (open.length === 0) return ['no cluster is served']
    const nats = open.map(({ runtime }) => runtime.natsTroubles())
    return nats.every((found) => found.length > 0) ? [...new Set(nats.flat())] : []
  }

  /** The state of each cluster, one a line. */
  lines(): string[] {
    return Array.from(this.#kept, ([name, { cluster }]) => {
      const { status, served } = cluster
      const { state, since, reason } = status
      const found =
        state === 'Up' && served !== undefined
          ? troublesOf(served)
          : [oneLine(reason ?? 'not served yet', REASON_CHARS)]
      return `cluster ${name}: ${state} since ${since.toISOString()}${found.length > 0 ? `: ${found.join('; ')}` : ''}`
    })
  }

  /** The metrics of all clusters, as of a registry. */
  readonly metrics: Pick<Registry, 'metrics' | 'contentType'> = {
    contentType: this.#registry.contentType,
    metrics: async () => {
      const [own, all] = await Promise.all([
        this.#registry.metrics(),
        mergedMetrics(this.#open.map(({ registry }) => registry)),
      ])
      return `${own}\n${all}`
    },
  }

  get #open(): ServedCluster[] {
    return Array.from(this.#kept.values(), ({ cluster }) => cluster)
      .filter(({ status }) => status.state === 'Up')
      .flatMap(({ served }) => served ?? [])
  }

  /** Ends what is not listed any more or is listed otherwise, and begins what is new. Nothing in a cluster is changed. */
  #update(listed: readonly ClusterEntry[], signal: AbortSignal, graceMs: number): void {
    const { log, share } = this.#deps
    // The bridge of a cluster with agents is in them.
    const entries = listed.filter(({ agent }) => !agent || share.parts.dispatch)
    this.#slots.clusters = entries.length
    for (const [name, { entry, stop, ended }] of this.#kept) {
      if (stop.signal.aborted || entries.some((one) => isDeepStrictEqual(one, entry))) continue
      log.info({ cluster: name }, 'cluster is not listed as before: it drains, its streams and objects stay')
      stop.abort(new Error('the cluster is not listed any more'))
      void ended.then(() => this.#kept.delete(name))
    }
    // A cluster that drains is begun again by a later look.
    for (const entry of entries) if (!this.#kept.has(entry.name)) this.#begin(entry, signal, graceMs)
  }

  #begin(entry: ClusterEntry, signal: AbortSignal, graceMs: number): void {
    const { name } = entry
    const config = configOf(this.#deps.config, entry)
    const log = this.#deps.log.child({ cluster: name })
    const share = this.#shareFor(entry)
    const cluster = new KeptCluster({
      open: (hooks) => this.#opened(entry, config, share, hooks),
      claim: (uid) => this.#claim(uid, name),
      access: followedConnection(config),
      ending: signal,
      log,
    })
    const stop = new AbortController()
    const ended = cluster.run(AbortSignal.any([signal, stop.signal]), graceMs)
    this.#kept.set(name, { entry, cluster, stop, ended })
  }

  async #opened(
    { name, labels }: ClusterEntry,
    config: Config,
    share: ProcessShare,
    hooks: Parameters<ConstructorParameters<typeof KeptCluster>[0]['open']>[0],
  ): Promise<ServedCluster> {
    await using opened = new AsyncDisposableStack()
    const slots = opened.use(this.#slots.join())
    const indexBytes = () => Math.max(INDEX_BYTES.least, INDEX_BYTES.all / Math.max(1, this.#kept.size))
    const listsAtOnce = Math.min(LISTS.most, Math.max(LISTS.least, Math.floor(LISTS.all / this.#kept.size)))
    const terms = { name, labels, slots, indexBytes, stateShare: STATE_SHARE, listsAtOnce, ...hooks }
    const served = opened.use(await openServed(config, share, terms))
    const resources = opened.move()
    return { ...served, [Symbol.asyncDispose]: () => resources.disposeAsync() }
  }

  /** What is prepared in a cluster is prepared once in the life of the process. */
  #shareFor({ agent }: ClusterEntry): ProcessShare {
    const { prepare, ...share } = this.#deps.share
    // Functions are installed there, by somebody who may.
    if (agent) return { ...share, parts: { ...share.parts, bridge: false } }
    let isPrepared = false
    return {
      ...share,
      async prepare(kube, log) {
        if (!isPrepared) await prepare?.(kube, log)
        isPrepared = true
      },
    }
  }

  /** Two queues for one cluster would run each key twice at the same time. */
  #claim(uid: string, name: string): Disposable {
    const holder = this.#claims.get(uid)
    if (holder !== undefined)
      throw new UsageError(
        `the namespace kube-system has UID ${uid} here and in cluster ${holder}: they are one cluster, or one is a copy of the other; list only one`,
      )
    this.#claims.set(uid, name)
    return { [Symbol.dispose]: () => void this.#claims.delete(uid) }
  }

  #gauges(): void {
    const gauge = (name: string, help: string, value: (cluster: KeptCluster) => number) => {
      const one: Gauge = new Gauge({
        name,
        help,
        labelNames: ['cluster'],
        registers: [this.#registry],
        collect: () => {
          one.reset()
          for (const [cluster, kept] of this.#kept) one.set({ cluster }, value(kept.cluster))
        },
      })
    }
    const awaySeconds = ({ status: { state, since } }: KeptCluster) =>
      state === 'Up' ? 0 : (Date.now() - since.getTime()) / 1000
    gauge('fairlead_cluster_up', '1 while the cluster is served', ({ status }) => Number(status.state === 'Up'))
    gauge('fairlead_cluster_away_seconds', 'Time since which the cluster is not served', awaySeconds)
  }
}

function troublesOf({ runtime }: ServedCluster): string[] {
  const waits = runtime.dispatcher?.trouble()
  return [...runtime.troubles(), ...(waits === undefined ? [] : [waits])]
}
