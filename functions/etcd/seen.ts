/** What etcd itself says: plain data, read before each decision. */
export interface Seen {
  /** By the name of the pod; one that did not answer is not in it. */
  answers: Record<string, Answer>
  /** Left out: no member gave one. */
  list?: MemberList
  /** Whether etcd demands users. Left out: not asked, or no answer. */
  isAuthEnabled?: boolean
  /** Why etcd does not answer this user. */
  denial?: string
}

export interface Answer {
  id: string
  clusterID: string
  version: string
  storageVersion: string
  isLearner: boolean
  /** Identifier of the leader that it follows; `0`: none. */
  leader: string
  term: number
  index: number
  appliedIndex: number
  revision: number
  dbSize: number
  dbSizeInUse: number
  dbSizeQuota: number
  /** Active alarms, by the identifier of the member that has raised them. */
  alarms: Alarm[]
  /** The version to which a downgrade is under way. */
  downgradeTo?: string
  /** Number of the authority of its certificate, where this function is the authority. */
  issuer?: number
  /** The newest authority, where it takes certificates of that. Asked only while members get to know it. */
  admits?: number
  /** The newest authority, where it has refused a certificate of that. */
  refuses?: number
}

export interface Alarm {
  id: string
  alarm: 'NOSPACE' | 'CORRUPT'
}

export interface MemberList {
  clusterID: string
  /** A quorum has confirmed it. If not, it may be an old one. */
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

/** One change of etcd, asked of the member in the pod `via`. */
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
