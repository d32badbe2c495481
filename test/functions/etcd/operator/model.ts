import { memberOf } from '../../../../functions/etcd/operator/names.ts'
import type { Answer, EtcdEffect, Seen } from '../../../../functions/etcd/operator/seen.ts'

/** One process of etcd with its data, by the name of its member. */
interface Process {
  isUp: boolean
  /** The identifier that its data are of; undefined: it has not joined. */
  id?: string
  applied: number
  upSince: number
  /** It has reached a quorum since it started: before that it answers nothing. */
  serves: boolean
}

interface Member {
  id: string
  name: string
  peerURL: string
  isLearner: boolean
}

/** How the process of a member is started. */
export interface Start {
  name: string
  state: string
  /** Up to where the data go with which a cluster is formed. */
  index?: number
  /** The token of the cluster that it forms. */
  token: string
  /** The peer URLs in its configuration. */
  told: string[]
  hasData: boolean
}

/** Plain data. */
export interface EtcdState {
  now: number
  members: Member[]
  processes: Map<string, Process>
  index: number
  leader: string | undefined
  births: number
  formed: number
  clusterID: string | undefined
  /** What a member that is cut off knows of the members. */
  former: Member[]
  /** Without etcd's own guard, a controller has to guard by itself. */
  isStrict: boolean
  /** No time passes: members catch up and count as connected at once. */
  isInstant: boolean
}

export const newEtcd = (options: Partial<Pick<EtcdState, 'now' | 'isStrict' | 'isInstant'>> = {}): EtcdState => ({
  now: 0,
  members: [],
  processes: new Map(),
  index: 0,
  leader: undefined,
  births: 0,
  formed: 0,
  clusterID: undefined,
  former: [],
  isStrict: true,
  isInstant: false,
  ...options,
})

const quorumOf = (voters: number): number => Math.floor(voters / 2) + 1
/** After that etcd counts a connection as one that lasts, in seconds. */
const LASTING_S = 5
/** Entries that clients write each second, and that a learner catches up in one. */
const WRITES = 100
const CATCH_UP = 32_000

/**
 * The rules of etcd for members, as far as a controller can meet them: guards of changes, learners that catch up, lost data,
 * silent members. All processes that are up reach each other; time passes in seconds.
 */
export class EtcdModel {
  readonly state: EtcdState

  constructor(state: EtcdState = newEtcd()) {
    this.state = state
  }

  get members(): Member[] {
    return this.state.members
  }
  get processes(): Map<string, Process> {
    return this.state.processes
  }
  get index(): number {
    return this.state.index
  }
  get now(): number {
    return this.state.now
  }
  /** Times that it was formed: more than one is the end of all data. */
  get formed(): number {
    return this.state.formed
  }
  /** Undefined: it was never formed. */
  get clusterID(): string | undefined {
    return this.state.clusterID
  }
  /** Whether two members are connected, and take each other's certificates. */
  reaches: (one: string, other: string) => boolean = () => true

  get voters(): Member[] {
    return this.members.filter(({ isLearner }) => !isLearner)
  }

  /** It runs, and has all that a quorum may need of it. */
  isLive = ({ name, id }: Member): boolean => {
    const process = this.processes.get(name)
    return process?.isUp === true && process.id === id && this.index - process.applied <= 1500
  }

  get hasQuorum(): boolean {
    return this.voters.some(this.#mayLead)
  }

  #mayLead = (one: Member): boolean => {
    const followers = this.voters.filter((other) => this.isLive(other) && this.reaches(one.name, other.name))
    return this.isLive(one) && followers.length >= quorumOf(this.voters.length)
  }

  get leader(): Member | undefined {
    if (!this.hasQuorum) return undefined
    const able = this.voters.filter(this.#mayLead)
    const next = able.find(({ id }) => id === this.state.leader) ?? able[0]
    this.state.leader = next?.id
    return next
  }

  /** False: the process ends at once. */
  start({ name, state, token, told, hasData, index }: Start): boolean {
    const old = this.processes.get(name)
    const known = hasData ? old : undefined
    const member = this.members.find((one) => memberOf(one.peerURL) === name)
    if (known?.id !== undefined) {
      // Removed: its peers do not let it in again.
      if (member?.id !== known.id) return false
      this.processes.set(name, { ...known, isUp: true, upSince: this.now, serves: false })
      if (this.hasQuorum) this.#serve()
      return true
    }
    if (state === 'new') return this.#form(name, token, told, index)
    // It was there before, and knows nothing of what it has promised.
    if (member === undefined || member.name !== '') return false
    const urls = this.members.map(({ peerURL }) => peerURL).sort()
    if (!this.hasQuorum || JSON.stringify(urls) !== JSON.stringify(told.toSorted())) return false
    if (!this.reaches(name, this.leader?.name ?? '')) return false
    const applied = this.state.isInstant ? this.index : 0
    this.processes.set(name, { isUp: true, id: member.id, applied, upSince: this.now, serves: true })
    member.name = name
    this.state.index++
    return true
  }

  /** Whether the leader reaches the member. */
  follows(name: string): boolean {
    const { leader } = this
    return leader !== undefined && this.reaches(name, leader.name)
  }

  #serve(): void {
    for (const [name, process] of this.processes) process.serves ||= process.isUp && this.follows(name)
  }

  #form(name: string, token: string, told: string[], index = 100_000): boolean {
    this.state.formed++
    this.state.clusterID = clusterIdOf(name, token)
    const [peerURL = ''] = told
    const id = String(++this.state.births)
    this.state.members = [{ id, name, peerURL, isLearner: false }]
    this.state.former = this.members
    this.state.index = index
    this.processes.set(name, { isUp: true, id, applied: this.index, upSince: this.now, serves: true })
    return true
  }

  stop(name: string): void {
    const process = this.processes.get(name)
    if (process) process.isUp = false
  }

  pass(): void {
    this.state.now++
    if (this.hasQuorum) {
      this.state.index += WRITES
      this.#serve()
    }
    for (const [name, process] of this.processes)
      if (process.isUp && this.follows(name)) process.applied = Math.min(this.index, process.applied + CATCH_UP)
    for (const member of this.voters) {
      const process = this.processes.get(member.name)
      if (process?.isUp && this.follows(member.name) && this.isLive(member)) process.applied = this.index
    }
  }

  #isLasting = (member: Member): boolean => {
    const { upSince = 0 } = this.processes.get(member.name) ?? {}
    return this.isLive(member) && (this.state.isInstant || this.now - upSince >= LASTING_S)
  }

  /** What a driver reads, of the pods that it can see. */
  seen(pods: readonly string[]): Seen {
    const leader = this.leader
    const answers: Seen['answers'] = {}
    for (const name of pods) {
      const process = this.processes.get(name)
      const member = this.members.find(({ id }) => id === process?.id)
      if (!process?.isUp || !process.serves || process.id === undefined || member === undefined) continue
      const followed = this.follows(name) ? leader : undefined
      answers[name] = answerOf(process, member, followed, this.index, this.clusterID ?? '')
    }
    const voters = pods.filter((name) => answers[name]?.isLearner === false)
    const voter = voters.find((name) => this.follows(name)) ?? voters[0]
    if (voter === undefined || this.clusterID === undefined) return { answers }
    const isCurrent = this.follows(voter)
    const members = (isCurrent ? this.members : this.state.former).map((one) => ({ ...one }))
    return { answers, list: { clusterID: this.clusterID, isCurrent, members } }
  }

  /** Throws the error that etcd would return. */
  perform(effect: EtcdEffect): void {
    if (!this.follows(effect.via) || !this.processes.get(effect.via)?.isUp) throw new Error('no answer within 5000 ms')
    this.state.index++
    if (effect.kind === 'addLearner') return this.#add(effect.peerURL)
    if (effect.kind === 'moveLeader') {
      if (this.leader?.name !== effect.via) throw new Error('etcdserver: not leader')
      const to = this.voters.find(({ id }) => id === effect.to)
      if (to === undefined || !this.#mayLead(to)) throw new Error('etcdserver: bad leader transferee')
      this.state.leader = to.id
      return
    }
    if (effect.kind !== 'remove' && effect.kind !== 'promote') throw new Error(`${effect.kind} is not modelled`)
    const member = this.members.find(({ id }) => id === effect.id)
    if (member === undefined) throw new Error('etcdserver: member not found')
    if (effect.kind === 'remove') this.#remove(member)
    else this.#promote(member)
  }

  #add(peerURL: string): void {
    if (this.members.some((one) => one.peerURL === peerURL)) throw new Error('etcdserver: Peer URLs already exists')
    if (this.state.isStrict && this.members.some(({ isLearner }) => isLearner))
      throw new Error('too many learner members in cluster')
    const lasting = this.voters.filter(this.#isLasting).length
    if (this.state.isStrict && this.voters.length > 1 && lasting < quorumOf(this.voters.length + 1))
      throw new Error('etcdserver: unhealthy cluster')
    this.state.former = this.members.map((one) => ({ ...one }))
    this.members.push({ id: String(++this.state.births + 100), name: '', peerURL, isLearner: true })
  }

  #remove(member: Member): void {
    const rest = this.voters.filter((one) => one !== member)
    if (!member.isLearner && this.state.isStrict) {
      const lasting = this.voters.filter(this.#isLasting)
      if (rest.filter(({ name }) => name !== '').length < quorumOf(rest.length))
        throw new Error('etcdserver: re-configuration failed due to not enough started members')
      if (lasting.includes(member) && lasting.length - 1 < 1 + Math.floor((this.voters.length - 1) / 2))
        throw new Error('etcdserver: unhealthy cluster')
    }
    this.state.members = this.members.filter((one) => one !== member)
    this.stop(memberOf(member.peerURL))
  }

  #promote(member: Member): void {
    if (!member.isLearner) throw new Error('etcdserver: can only promote a learner member')
    const { applied = 0 } = this.processes.get(member.name) ?? {}
    if (member.name === '' || applied < 0.9 * this.index)
      throw new Error('etcdserver: can only promote a learner member which is in sync with leader')
    member.isLearner = false
  }
}

/** Returns the same id for the same name and token. */
export const clusterIdOf = (name: string, token: string): string => `${name} ${token}`

const answerOf = (
  process: Process,
  member: Member,
  leader: Member | undefined,
  index: number,
  clusterID: string,
): Answer => ({
  id: member.id,
  clusterID,
  version: '3.7.3',
  storageVersion: '3.7.0',
  isLearner: member.isLearner,
  leader: leader?.id ?? '0',
  term: 2,
  index: member === leader ? index : process.applied,
  appliedIndex: process.applied,
  revision: process.applied,
  dbSize: 1,
  dbSizeInUse: 1,
  dbSizeQuota: 2,
  alarms: [],
})
