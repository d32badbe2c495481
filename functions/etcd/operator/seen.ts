/** The state that etcd reports: plain data, read before each decision. */
export interface Seen {
  /** The answers, keyed by the name of the pod. Pods that did not answer are missing. */
  answers: Record<string, Answer>
  /** Left out: no member returned a list. */
  list?: MemberList
  /** Whether etcd demands users. Left out: not asked, or no answer. */
  isAuthEnabled?: boolean
  /** The reason why etcd does not answer this user. */
  denial?: string
}

export interface Answer {
  id: string
  clusterID: string
  version: string
  storageVersion: string
  isLearner: boolean
  /** The identifier of the leader that it follows; `0`: none. */
  leader: string
  term: number
  index: number
  appliedIndex: number
  revision: number
  dbSize: number
  dbSizeInUse: number
  dbSizeQuota: number
  /** The active alarms. Each has the identifier of the member that has raised it. */
  alarms: Alarm[]
  /** The target version of a downgrade that is under way. */
  downgradeTo?: string
  /** The number of the authority of its certificate, if this function is the authority. */
  issuer?: number
  /** The number of the newest authority, if the member accepts its certificates. Asked only during a rotation. */
  admits?: number
  /** The number of the newest authority, if the member has refused its certificate. */
  refuses?: number
}

export interface Alarm {
  id: string
  alarm: 'NOSPACE' | 'CORRUPT'
}

export interface MemberList {
  clusterID: string
  /** True: a quorum has confirmed the list. Otherwise it may be out of date. */
  isCurrent: boolean
  members: ListedMember[]
}

export interface ListedMember {
  id: string
  /** Empty until its process has joined for the first time. */
  name: string
  peerURL: string
  isLearner: boolean
}

/** One change of etcd, requested from the member in the pod `via`. */
export type EtcdEffect =
  | { kind: 'addLearner'; via: string; peerURL: string }
  | { kind: 'promote'; via: string; id: string }
  | { kind: 'remove'; via: string; id: string }
  | { kind: 'moveLeader'; via: string; to: string }
  | { kind: 'compact'; via: string; revision: number }
  | { kind: 'defragment'; via: string }
  | { kind: 'disarm'; via: string; id: string; alarm: Alarm['alarm'] }
  | { kind: 'enableAuth' | 'disableAuth'; via: string }
  | { kind: 'downgrade'; via: string; action: 'enable' | 'cancel'; version: string }
