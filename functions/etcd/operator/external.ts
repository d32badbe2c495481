import { Secret } from 'fairlead'
import {
  ALARMS,
  type Etcd,
  type EtcdEndpoint,
  EtcdError,
  type EtcdStatus,
  type EtcdTls,
  GRPC,
  openEtcd,
} from '../client/index.ts'
import { newestOf, numberIn, storedAuthority } from './authorities.ts'
import { issued, ROOT, validity } from './certificates.ts'
import { clusterIdOf, type EtcdRun, secretsOf } from './cluster.ts'
import { CLIENT_PORT, hostOf } from './names.ts'
import { MemberPod, type PodObject } from './parts.ts'
import { takesTls } from './pod.ts'
import type { Alarm, Answer, EtcdEffect, MemberList, Seen } from './seen.ts'
import { clientTls } from './tls.ts'

/** The time-out of a read, in milliseconds. A member that needs longer counts as silent. */
const ASK_MS = 2000
/** The time-out of a change, in milliseconds. etcd gives up after 7 s. */
const CHANGE_MS = 8000

/** Action codes of etcd's calls. */
const DEACTIVATE = 2
const ENABLE = 1
const CANCEL = 2

/** Asks all members at the same time. Members that do not answer are left out. */
export async function read(run: EtcdRun): Promise<Seen> {
  const pods = run.owned(MemberPod).filter(({ status }) => status?.podIP !== undefined && status.phase === 'Running')
  const asked = await Promise.all(pods.map(async (pod) => [pod.metadata.name, await answerOf(run, pod)] as const))
  const answers = Object.fromEntries(asked.filter((one): one is [string, Answer] => typeof one[1] === 'object'))
  const denial = asked.map(([, answer]) => answer).find((answer) => typeof answer === 'string')
  const voters = votersFirst(run, pods, answers)
  const [list, hasAuth] = await Promise.all([listFrom(run, voters), authOf(run, voters)])
  return {
    answers,
    ...(list && { list }),
    ...(hasAuth !== undefined && { isAuthEnabled: hasAuth }),
    ...(denial !== undefined && { denial }),
  }
}

/** Requests one change. Throws the error of etcd. */
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
    case 'enableAuth':
      await enableAuth(etcd, options)
      return
    case 'disableAuth':
      await disableAuth(etcd, options)
      return
    case 'downgrade': {
      const action = effect.action === 'enable' ? ENABLE : CANCEL
      await etcd.call('downgrade', { action, version: effect.version }, options)
    }
  }
}

/** Returns the answer of a member. A text is the reason why etcd does not answer this user. */
async function answerOf(run: EtcdRun, pod: PodObject): Promise<Answer | string | undefined> {
  const newcomer = newcomerTls(run)
  using etcd = openEtcd(endpointOf(run, pod))
  const options = { timeoutMs: ASK_MS, signal: run.signal }
  const [answer, admitted] = await Promise.all([
    etcd.call('status', {}, options).then(asAnswer, denialIn),
    newcomer && admission(run, pod, newcomer),
  ])
  if (typeof answer !== 'object') return answer
  const issuer = numberIn(etcd.certificate?.issuer ?? '')
  return { ...answer, ...(issuer !== undefined && { issuer }), ...admitted }
}

const denialIn = (error: unknown): string | undefined =>
  error instanceof EtcdError && /user name is empty|user name not found|permission denied/.test(error.text)
    ? error.text
    : undefined

/** Returns whether a member accepts a certificate of this authority. A silent member has not refused it. */
async function admission(
  run: EtcdRun,
  pod: PodObject,
  { number, tls }: Newcomer,
): Promise<Pick<Answer, 'admits' | 'refuses'>> {
  using etcd = openEtcd(endpointOf(run, pod, tls))
  return await etcd.call('status', {}, { timeoutMs: ASK_MS, signal: run.signal }).then(
    () => ({ admits: number }),
    ({ code }: EtcdError) => (code === GRPC.deadlineExceeded ? {} : { refuses: number }),
  )
}

/** Returns the pods with the leader of the cluster first, then its other voters. */
function votersFirst(run: EtcdRun, pods: readonly PodObject[], answers: Seen['answers']): PodObject[] {
  const known = clusterIdOf(run.object, answers, run.owned(MemberPod))
  const members = pods.filter(({ metadata }) => answers[metadata.name]?.clusterID === known)
  const voters = members.filter(({ metadata }) => answers[metadata.name]?.isLearner === false)
  const leads = ({ metadata: { name } }: PodObject): number => Number(answers[name]?.leader === answers[name]?.id)
  return voters.toSorted((a, b) => leads(b) - leads(a))
}

/** Returns whether etcd demands users, if the spec has a setting for it. */
async function authOf(run: EtcdRun, [first]: readonly PodObject[]): Promise<boolean | undefined> {
  if (first === undefined || run.object.spec.auth === undefined) return undefined
  using etcd = openEtcd(endpointOf(run, first))
  return await isAuthEnabled(etcd, { timeoutMs: ASK_MS, signal: run.signal })
}

/**
 * Returns the member list of the first pod. A list without confirmation by a quorum is returned only if there is no
 * other.
 */
async function listFrom(run: EtcdRun, [first]: readonly PodObject[]): Promise<MemberList | undefined> {
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

/**
 * Returns the alarm in an error of etcd, such as `memberID:1234 alarm:NOSPACE `. An error without an alarm gives none.
 */
function alarmIn(error: string): Alarm[] {
  const [, alarm] = /alarm:(NOSPACE|CORRUPT)/.exec(error) ?? []
  const [, id = '0'] = /memberID:(\d+)/.exec(error) ?? []
  return alarm === undefined ? [] : [{ id, alarm: alarm as Alarm['alarm'] }]
}

type ClientTls = Omit<EtcdTls, 'servername'>

/** A certificate of the authority with this number. */
interface Newcomer {
  number: number
  tls: ClientTls
}

/** Returns the endpoint with the address of the pod, so that the function needs no cluster DNS. */
function endpointOf(run: EtcdRun, pod: PodObject, other?: ClientTls): EtcdEndpoint {
  const { podIP: address = '' } = pod.status ?? {}
  const host = `${address.includes(':') ? `[${address}]` : address}:${CLIENT_PORT}`
  if (!takesTls(pod)) return { url: `http://${host}` }
  const tls = other ?? clientTls(run.object, secretsOf(run)) ?? { ca: '' }
  return { url: `https://${host}`, tls: { ...tls, servername: hostOf(run.object, pod.metadata.name) } }
}

/**
 * Returns a certificate of the newest authority while members learn to trust it. A member that accepts the certificate
 * trusts that authority for clients and for peers, because its process has read both from one file.
 */
function newcomerTls(run: EtcdRun): Newcomer | undefined {
  const { object } = run
  const state = object.status.TLS
  const usual = clientTls(object, secretsOf(run))
  if ((state?.phase !== 'Trusting' && state?.phase !== 'Trusted') || usual === undefined) return undefined
  const number = newestOf(state)
  const issuer = storedAuthority(object, run.owned(Secret), number)?.issuer
  if (issuer === undefined) return undefined
  const during = validity(state.begunAt, object.spec.TLS?.auto?.certificateDays ?? 0)
  const { 'etcd-client.crt': cert = '', 'etcd-client.key': key = '' } = issued(object, 'operator', issuer, during)
  return { number, tls: { ca: usual.ca, cert, key } }
}

type Options = Parameters<Etcd['call']>[2]

/** Undefined: the member does not answer. */
export const isAuthEnabled = (etcd: Etcd, options: Options): Promise<boolean | undefined> =>
  etcd.call('authStatus', {}, options).then(
    ({ enabled }) => enabled,
    () => undefined,
  )

/**
 * Enables authentication. A call whose effect exists already counts as successful, so that the sequence may be repeated
 * after any of them.
 */
export async function enableAuth(etcd: Etcd, options: Options): Promise<void> {
  await etcd.call('userAdd', { name: ROOT, password: '', options: { no_password: true } }, options).catch(unlessDone)
  await etcd.call('roleAdd', { name: ROOT }, options).catch(unlessDone)
  await etcd.call('userGrantRole', { user: ROOT, role: ROOT }, options)
  await etcd.call('authEnable', {}, options)
}

export async function disableAuth(etcd: Etcd, options: Options): Promise<void> {
  await etcd.call('authDisable', {}, options).catch(unlessDone)
}

function unlessDone(error: unknown): void {
  if (!(error instanceof EtcdError) || !/already exists|authentication is not enabled/.test(error.text)) throw error
}
