import { type Decoded, list, message } from './protobuf.ts'

/** Messages of etcd's API v3 (`rpc.proto` of api/v3), with the fields that are used. */
const Header = message({ cluster_id: [1, 'id'], member_id: [2, 'id'], revision: [3, 'int'], raft_term: [4, 'int'] })

const Member = message({
  ID: [1, 'id'],
  name: [2, 'string'],
  peerURLs: [3, list('string')],
  clientURLs: [4, list('string')],
  isLearner: [5, 'bool'],
})

export const ALARMS = ['NONE', 'NOSPACE', 'CORRUPT'] as const
const AlarmMember = message({ memberID: [1, 'id'], alarm: [2, 'int'] })
const DowngradeInfo = message({ enabled: [1, 'bool'], targetVersion: [2, 'string'] })
const Members = message({ header: [1, Header], members: [2, list(Member)] })
const Answer = message({ header: [1, Header] })
const Empty = message({})
const Named = message({ name: [1, 'string'] })
const ById = message({ ID: [1, 'id'] })

const KeyValue = message({
  key: [1, 'bytes'],
  create_revision: [2, 'int'],
  mod_revision: [3, 'int'],
  version: [4, 'int'],
  value: [5, 'bytes'],
})

const call = <Request, Response>(path: string, request: Request, response: Response) => ({ path, request, response })
const of = (service: string, method: string): string => `/etcdserverpb.${service}/${method}`

/** The calls with one request message and one response message. */
export const CALLS = {
  memberList: call(of('Cluster', 'MemberList'), message({ linearizable: [1, 'bool'] }), Members),
  memberAdd: call(
    of('Cluster', 'MemberAdd'),
    message({ peerURLs: [1, list('string')], isLearner: [2, 'bool'] }),
    message({ header: [1, Header], member: [2, Member], members: [3, list(Member)] }),
  ),
  memberRemove: call(of('Cluster', 'MemberRemove'), ById, Members),
  memberPromote: call(of('Cluster', 'MemberPromote'), ById, Members),
  memberUpdate: call(of('Cluster', 'MemberUpdate'), message({ ID: [1, 'id'], peerURLs: [2, list('string')] }), Members),
  status: call(
    of('Maintenance', 'Status'),
    Empty,
    message({
      header: [1, Header],
      version: [2, 'string'],
      dbSize: [3, 'int'],
      leader: [4, 'id'],
      raftIndex: [5, 'int'],
      raftTerm: [6, 'int'],
      raftAppliedIndex: [7, 'int'],
      errors: [8, list('string')],
      dbSizeInUse: [9, 'int'],
      isLearner: [10, 'bool'],
      storageVersion: [11, 'string'],
      dbSizeQuota: [12, 'int'],
      downgradeInfo: [13, DowngradeInfo],
    }),
  ),
  alarm: call(
    of('Maintenance', 'Alarm'),
    message({ action: [1, 'int'], memberID: [2, 'id'], alarm: [3, 'int'] }),
    message({ header: [1, Header], alarms: [2, list(AlarmMember)] }),
  ),
  defragment: call(of('Maintenance', 'Defragment'), Empty, Answer),
  moveLeader: call(of('Maintenance', 'MoveLeader'), message({ targetID: [1, 'id'] }), Answer),
  hashKV: call(
    of('Maintenance', 'HashKV'),
    message({ revision: [1, 'int'] }),
    message({ header: [1, Header], hash: [2, 'int'], compact_revision: [3, 'int'], hash_revision: [4, 'int'] }),
  ),
  downgrade: call(
    of('Maintenance', 'Downgrade'),
    message({ action: [1, 'int'], version: [2, 'string'] }),
    message({ header: [1, Header], version: [2, 'string'] }),
  ),
  compact: call(of('KV', 'Compact'), message({ revision: [1, 'int'], physical: [2, 'bool'] }), Answer),
  put: call(of('KV', 'Put'), message({ key: [1, 'bytes'], value: [2, 'bytes'] }), Answer),
  range: call(
    of('KV', 'Range'),
    message({
      key: [1, 'bytes'],
      range_end: [2, 'bytes'],
      limit: [3, 'int'],
      revision: [4, 'int'],
      serializable: [7, 'bool'],
    }),
    message({ header: [1, Header], kvs: [2, list(KeyValue)], more: [3, 'bool'], count: [4, 'int'] }),
  ),
  authStatus: call(of('Auth', 'AuthStatus'), Empty, message({ header: [1, Header], enabled: [2, 'bool'] })),
  authEnable: call(of('Auth', 'AuthEnable'), Empty, Answer),
  authDisable: call(of('Auth', 'AuthDisable'), Empty, Answer),
  userAdd: call(
    of('Auth', 'UserAdd'),
    message({ name: [1, 'string'], password: [2, 'string'], options: [3, message({ no_password: [1, 'bool'] })] }),
    Answer,
  ),
  roleAdd: call(of('Auth', 'RoleAdd'), Named, Answer),
  userGrantRole: call(of('Auth', 'UserGrantRole'), message({ user: [1, 'string'], role: [2, 'string'] }), Answer),
} as const

/** The snapshot call, whose response is a stream of these messages. */
export const SNAPSHOT = call(
  of('Maintenance', 'Snapshot'),
  Empty,
  message({ header: [1, Header], remaining_bytes: [2, 'int'], blob: [3, 'bytes'], version: [4, 'string'] }),
)

export type Calls = typeof CALLS
export type EtcdMember = Decoded<typeof Member>
export type EtcdStatus = Decoded<Calls['status']['response']>
