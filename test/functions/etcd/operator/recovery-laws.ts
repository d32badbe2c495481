import type { EtcdWorld } from './world.ts'

/** Members of before that find a quorum again, and the new one, until the next look. */
const LONGEST_DOUBLE_S = 3

type Status = Record<string, unknown>

const isReady = ({ type, status }: { type: string; status: string }): boolean => type === 'Ready' && status === 'True'

/** The laws of the formation of etcd clusters, when one cluster replaces another one. */
export class RecoveryLaws {
  readonly #world: EtcdWorld
  /** How many recoveries have begun. */
  begun = 0
  #doubled = 0
  /** The members of before, and those of them that were Ready since the recovery was recorded. */
  #former: readonly string[] = []
  readonly #served = new Set<string>()
  #formedBefore = 0
  #isFormed = false
  #formed = 0

  constructor(world: EtcdWorld) {
    this.#world = world
  }

  get isRestoring(): boolean {
    return this.#world.stored.status['restoring'] !== undefined
  }

  /** The status is about to be written. */
  judge(before: Status, after: Status): void {
    const { broken, etcds } = this.#world
    if (after['restoring'] !== before['restoring'] && after['restoring'] !== undefined)
      this.#formedBefore = etcds.formed
    if (after['restoredFrom'] !== before['restoredFrom'] && etcds.formed === this.#formedBefore)
      broken.push('a restore was told that has not been made')
    if (this.#isReplaced(before, after)) this.#isFormed = false
  }

  #isReplaced(before: Status, after: Status): boolean {
    const { broken, etcd, etcds, object } = this.#world
    const { recovering } = after
    if (recovering !== undefined && before['recovering'] === undefined) {
      this.begun++
      this.#former = etcd.members.map(({ name }) => name)
      if (recovering !== object.spec.recovery?.quorumLostSince || recovering !== before['quorumLostSince'])
        broken.push('a recovery has begun that nobody has asked for')
    }
    const [from, to] = [before['clusterID'], after['clusterID']]
    if (recovering === undefined && before['recovering'] !== undefined && from === to) {
      this.#former = []
      this.#served.clear()
    }
    if (from === undefined || to === undefined || from === to) return false
    if (etcd.hasQuorum) broken.push('a cluster that has a quorum was replaced')
    const [kept, lost] = [etcds.by(to)?.index ?? 0, this.#mostAdvanced()]
    if (kept < lost) broken.push(`entries up to ${kept} were kept, and a member had ${lost}`)
    return true
  }

  /** A pod is about to be created. */
  judgePod(name: string): void {
    const { broken, etcd, etcds, stored } = this.#world
    const { clusterID, recovering } = stored.status
    const its = etcds.all.find(({ processes }) => processes.has(name))
    if (clusterID === undefined || recovering !== undefined || its === undefined || its === etcd) return
    broken.push(`${name} of a cluster of before got a pod`)
  }

  /** A volume is about to be deleted. */
  judgeClaim(name: string): void {
    if (this.#served.has(name))
      this.#world.broken.push(`volume ${name} was deleted, whose member was Ready since the recovery was recorded`)
  }

  /** A second is over. */
  pass(): void {
    const { broken, etcd, stored } = this.#world
    for (const name of this.#former)
      if (stored.pods.get(name)?.status?.conditions?.some(isReady)) this.#served.add(name)
    if (this.isRestoring) this.#isFormed = false
    if (this.#isFormed && etcd.formed > this.#formed) broken.push('a second cluster was formed')
    this.#isFormed ||= !this.isRestoring && stored.conditions['Available']?.status === 'True'
    this.#formed = etcd.formed
    const serving = this.#world.etcds.all.filter(({ hasQuorum }) => hasQuorum)
    this.#doubled = serving.length > 1 ? this.#doubled + 1 : 0
    if (this.#doubled > LONGEST_DOUBLE_S) broken.push('two clusters serve clients')
  }

  /** What members that serve have committed at most. */
  #mostAdvanced(): number {
    const processes = [...this.#world.etcd.processes.values()]
    return Math.max(0, ...processes.map(({ isUp, serves, applied }) => (isUp && serves ? applied : 0)))
  }
}
