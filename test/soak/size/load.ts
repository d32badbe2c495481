import { setTimeout as sleep } from 'node:timers/promises'
import type { RunRecord } from '#contracts'
import type { RunsView } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { ConfigMap } from '#sdk'
import { nowMs, SENT } from '../../bench/bridge-changes.ts'
import { type Etcd, otherName, primaryName } from './fill.ts'
import { EDIT, teamOf } from './function.ts'

const TICK_MS = 20
const EDITS_AT_ONCE = 200
/** The objects of one team show when a change is in EVENTS. All others would cost this process too much. */
export const SAMPLED_TEAM = 0

interface Copy {
  data?: Record<string, string>
}

/** Milliseconds from the answer to an edit until its key was queued, until its run began, and until the run ended. */
export interface Delays {
  queued: number
  began: number
  ended: number
}

interface Sizes {
  teams: number
  primaries: number
  others: number
}

/** Calls `act` with how many are due, as often as the rate asks for; never more behind than one second. */
async function paced(
  rate: () => number,
  signal: AbortSignal,
  act: (count: number) => void | Promise<void>,
): Promise<void> {
  let due = 0
  let before = performance.now()
  while (!signal.aborted) {
    const now = performance.now()
    due = Math.min(due + ((now - before) / 1000) * rate(), rate())
    before = now
    const count = Math.floor(due)
    due -= count
    if (count > 0) await act(count)
    await sleep(TICK_MS)
  }
}

/** Changes of objects that nothing reconciles, through etcd. */
export class Changes {
  sent = 0
  #next = 0
  readonly #etcd: Etcd
  readonly #sizes: Sizes

  constructor(etcd: Etcd, sizes: Sizes) {
    this.#etcd = etcd
    this.#sizes = sizes
  }

  run(rate: () => number, signal: AbortSignal): Promise<void> {
    return paced(rate, signal, async (count) => {
      const changes = Array.from({ length: Math.min(count, 100) }, () => this.#change())
      // A transaction of etcd takes each key once.
      const distinct = new Map(changes.map((change) => [`${change.namespace}/${change.name}`, change]))
      await this.#etcd.put([...distinct.values()])
      this.sent += Math.min(count, 100)
    })
  }

  /** One in ten is of the sampled team, the others are of all teams in turn. */
  #change() {
    const { teams, others } = this.#sizes
    const number = this.#next++
    const team = number % 10 === 0 ? SAMPLED_TEAM : (number * 7919) % teams
    const name = otherName(number % others)
    return { namespace: teamOf(team), name, annotations: { [SENT]: String(nowMs()) } }
  }
}

/** Edits of ConfigMaps that are reconciled, through the API server; and when the run that follows has ended. */
export class Edits {
  sent = 0
  failed = 0
  #delays: Delays[] = []
  #underWay = 0
  readonly #open = new Map<string, number>()
  readonly #kube: KubeClient
  readonly #sizes: Sizes

  constructor(kube: KubeClient, sizes: Sizes) {
    this.#kube = kube
    this.#sizes = sizes
  }

  /** The delays of the edits that were followed since the last call. */
  takeDelays(): Delays[] {
    return this.#delays.splice(0)
  }

  /** Edits that nothing has followed yet. */
  get unfollowed(): number {
    return this.#open.size
  }

  run(rate: () => number, signal: AbortSignal): Promise<void> {
    return paced(rate, signal, (count) => {
      for (let index = 0; index < count && this.#underWay < EDITS_AT_ONCE; index++) void this.#edit()
    })
  }

  /**
   * Follows the history of runs. A watch of the copies would show the lag of the watch as well, which is tens of seconds
   * on an API server that is out of CPU.
   */
  async watch(runs: RunsView, after: number, signal: AbortSignal): Promise<void> {
    for await (const { record } of runs.follow({}, after, signal))
      for (const { outcome } of record.laps) {
        const [copy] = (outcome?.apply ?? []) as Copy[]
        this.#followed(copy?.data?.[EDIT], record)
      }
  }

  #followed(value = '', { queuedAt, startedAt, endedAt }: RunRecord): void {
    const since = this.#open.get(value)
    if (since === undefined) return
    this.#open.delete(value)
    const after = (time: string) => Math.max(0, Date.parse(time) - since)
    this.#delays.push({ queued: after(queuedAt), began: after(startedAt), ended: after(endedAt) })
  }

  async #edit(): Promise<void> {
    const { teams, primaries } = this.#sizes
    const number = this.sent++
    const [namespace, name] = [teamOf((number * 7919) % teams), primaryName(Math.floor(number / teams) % primaries)]
    const value = `${number}-${Math.round(nowMs())}`
    this.#underWay++
    try {
      this.#open.set(value, nowMs())
      await this.#kube.patch(resourcePath(ConfigMap, namespace, name), { data: { [EDIT]: value } }, 'merge')
      if (this.#open.has(value)) this.#open.set(value, nowMs())
    } catch {
      this.#open.delete(value)
      this.failed++
    } finally {
      this.#underWay--
    }
  }
}
