import { ALARMS, type EtcdEndpoint, type EtcdStatus, openEtcd } from '#etcd'
import { clusterIdOf, type EtcdRun, secretsOf } from './cluster.ts'
import { CLIENT_PORT, hostOf } from './names.ts'
import { MemberPod, type PodObject } from './parts.ts'
import { takesTls } from './pod.ts'
import type { Alarm, Answer, EtcdEffect, MemberList, Seen } from './seen.ts'
import { clientTls } from './tls.ts'

/** Of a question, in milliseconds: a member that needs longer counts as silent. */
const ASK_MS = 2000
/** Of a change: etcd gives up after 7 s. */
const CHANGE_MS = 8000

/** Actions of etcd's calls. */
const DEACTIVATE = 2
const ENABLE = 1
const CANCEL = 2

/** Asks all members at once. What does not answer is left out. */
export async function read(run: EtcdRun): Promise<Seen> {
  const pods = run.owned(MemberPod).filter(({ status }) => status?.podIP !== undefined && status.phase === 'Running')
  const asked = await Promise.all(pods.map(async (pod) => [pod.metadata.name, await answerOf(run, pod)] as const))
  const answers = Object.fromEntries(asked.filter((one): one is [string, Answer] => one[1] !== undefined))
  const list = await listFrom(run, pods, answers)
  return { answers, ...(list && { list }) }
}

/** Asks for one change. Throws what etcd answers. */
export async function perform(effect: EtcdEffect, run: EtcdRun): Promise<void> {
  const pod = run.owned(MemberPod).find(({ metadata }) => metadata.name === effect.via)
  if (pod === undefined) throw new Error(`pod ${effect.via} is gone`)
  using etcd = openEtcd(endpointOf(run, pod))
  const options = { timeoutMs: CHANGE_MS, signal: run.signal }
  switch (effect.kind) {
    case 'addLearner':
      await etcd.call('memberAdd', { peerURLs: [effect.peerURL], isLearner: true }, options)
      return
    case 'promote':
      await etcd.call('memberPromote', { ID: effect.id }, options)
      return
    case 'remove':
      await etcd.call('memberRemove', { ID: effect.id }, options)
      return
    case 'moveLeader':
      await etcd.call('moveLeader', { targetID: effect.to }, options)
      return
    case 'compact':
      await etcd.call('compact', { revision: effect.revision, physical: true }, options)
      return
    case 'defragment':
      await etcd.call('defragment', {}, options)
      return
    case 'disarm':
      await etcd.call(
        'alarm',
        { action: DEACTIVATE, memberID: effect.id, alarm: ALARMS.indexOf(effect.alarm) },
        options,
      )
      return
    case 'downgrade': {
      const action = effect.action === 'enable' ? ENABLE : CANCEL
      await etcd.call('downgrade', { action, version: effect.version }, options)
    }
  }
}

/** The address of the pod, so that no DNS of the cluster is needed where the function runs. */
function endpointOf(run: EtcdRun, pod: PodObject): EtcdEndpoint {
  const { podIP: address = '' } = pod.status ?? {}
  const host = `${address.includes(':') ? `[${address}]` : address}:${CLIENT_PORT}`
  if (!takesTls(pod)) return { url: `http://${host}` }
  const tls = clientTls(run.object, secretsOf(run)) ?? { ca: '' }
  return { url: `https://${host}`, tls: { ...tls, servername: hostOf(run.object, pod.metadata.name) } }
}

async function answerOf(run: EtcdRun, pod: PodObject): Promise<Answer | undefined> {
  using etcd = openEtcd(endpointOf(run, pod))
  const options = { timeoutMs: ASK_MS, signal: run.signal }
  return await etcd.call('status', {}, options).then(asAnswer, () => undefined)
}

/** Of the leader, or else of any voter; one that no quorum confirms, only if there is no other. */
async function listFrom(
  run: EtcdRun,
  pods: readonly PodObject[],
  answers: Seen['answers'],
): Promise<MemberList | undefined> {
  const known = clusterIdOf(run.object, answers)
  const asked = pods.filter(({ metadata }) => answers[metadata.name]?.clusterID === known)
  const voters = asked.filter(({ metadata }) => answers[metadata.name]?.isLearner === false)
  const leads = ({ metadata: { name } }: PodObject): number => Number(answers[name]?.leader === answers[name]?.id)
  const [first] = voters.toSorted((a, b) => leads(b) - leads(a))
  if (first === undefined) return undefined
  using etcd = openEtcd(endpointOf(run, first))
  const ask = (isCurrent: boolean): Promise<MemberList> =>
    etcd
      .call('memberList', { linearizable: isCurrent }, { timeoutMs: ASK_MS, signal: run.signal })
      .then(({ header, members }) => ({
        clusterID: header.cluster_id,
        isCurrent,
        members: members.map(({ ID: id, name, peerURLs: [peerURL = ''], isLearner }) => ({
          id,
          name,
          peerURL,
          isLearner,
        })),
      }))
  return await ask(true)
    .catch(() => ask(false))
    .catch(() => undefined)
}

function asAnswer(status: EtcdStatus): Answer {
  const { header, version, storageVersion, isLearner, leader, raftTerm, raftIndex, raftAppliedIndex } = status
  const { enabled, targetVersion } = status.downgradeInfo
  return {
    id: header.member_id,
    clusterID: header.cluster_id,
    version,
    storageVersion,
    isLearner,
    leader,
    term: raftTerm,
    index: raftIndex,
    appliedIndex: raftAppliedIndex,
    revision: header.revision,
    dbSize: status.dbSize,
    dbSizeInUse: status.dbSizeInUse,
    dbSizeQuota: status.dbSizeQuota,
    alarms: status.errors.flatMap(alarmIn),
    ...(enabled && { downgradeTo: targetVersion }),
  }
}

/** Each active alarm is one of the errors, e.g. `memberID:1234 alarm:NOSPACE `. Without a member, none is known. */
function alarmIn(error: string): Alarm[] {
  const [, alarm] = /alarm:(NOSPACE|CORRUPT)/.exec(error) ?? []
  const [, id = '0'] = /memberID:(\d+)/.exec(error) ?? []
  return alarm === undefined ? [] : [{ id, alarm: alarm as Alarm['alarm'] }]
}
