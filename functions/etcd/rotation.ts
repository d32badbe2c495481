import { newestOf, signerOf, type Tls, type TlsState } from './authorities.ts'
import { endOf, secretNameOf, textIn } from './certificates.ts'
import type { Cluster, Member } from './cluster.ts'
import type { PodObject } from './parts.ts'
import { said } from './replacement.ts'
import { beginRestore } from './restoration.ts'
import type { Step } from './step.ts'

const DAY_MS = 86_400_000
const MINUTE_MS = 60_000

/** Comes first: nothing else can be done without certificates. */
export function prepareTls(cluster: Cluster): Step | undefined {
  const { object, tls, now } = cluster
  const { auto } = object.spec.TLS ?? {}
  const { TLS: state, clusterID } = object.status
  if ((auto === undefined) !== (state === undefined) && (state !== undefined || clusterID !== undefined)) {
    const message = `spec.TLS.auto cannot be ${auto ? 'added' : 'removed'} later: ${auto ? 'remove it' : 'put it back'}`
    return { reason: 'TLSDiffers', message, isStuck: true, touchesNothing: true }
  }
  if (auto === undefined) return undefined
  const reason = 'PreparingTLS'
  const message = 'the authority of the cluster is made'
  if (state === undefined || tls === undefined) return { reason, message, tls: first(1, auto.rotation, now) }
  if (tls.lost !== undefined) return startOver(cluster, tls) ?? lostSecrets(tls.lost)
  if (state.phase !== 'Preparing') return renew(tls, now, auto.certificateDays)
  // What it is drawn from differs from run to run, so that nothing begins before it is stored.
  return tls.isDrawing ? { reason, message, after: 1 } : { reason, message, tls: toPhase(state, 'Stable', now) }
}

const toPhase = (state: TlsState, phase: TlsState['phase'], now: Date): TlsState => ({
  ...state,
  phase,
  since: now.toISOString(),
})

const first = (number: number, rotation: number, now: Date): TlsState => {
  const at = now.toISOString()
  return { phase: 'Preparing', authority: number, trusted: [number], rotation, since: at, begunAt: at, issuedAt: at }
}

/** Where no member is there, or those that are there are replaced by a snapshot. */
function startOver(cluster: Cluster, { state }: Tls): Step | undefined {
  const { object, pods, now } = cluster
  const tls = first(newestOf(state) + 1, state.rotation, now)
  const restore = beginRestore(cluster)
  if (restore !== undefined) return { ...restore, tls }
  const message = 'another authority is made, because nothing relies on the one that is gone'
  return object.status.clusterID === undefined && pods.length === 0
    ? { reason: 'PreparingTLS', message, tls }
    : undefined
}

/** Other certificates would cut off the members that run, which have no other authority. */
const lostSecrets = (lost: string): Step => ({
  reason: 'SecretsLost',
  message:
    `${lost}. Members and clients go on with the certificates that they have, and no other ones are made. Put the ` +
    'Secrets back, or restore a backup',
  isStuck: true,
  touchesNothing: true,
})

/** Members and clients read a third of the time before the end of the certificates at the latest. */
const renewalOf = ({ issuedAt }: TlsState, certificateDays: number): number =>
  Date.parse(issuedAt) + (certificateDays * DAY_MS * 2) / 3

function renew(tls: Tls, now: Date, certificateDays: number): Step | undefined {
  if (signerOf(tls) === undefined || now.getTime() < renewalOf(tls.state, certificateDays)) return undefined
  const message = `certificates of ${tls.state.issuedAt} are issued again`
  const state = { ...tls.state, issuedAt: now.toISOString() }
  return { condition: 'Maintaining', reason: 'RenewingCertificates', message, tls: state }
}

/**
 * Another authority, while all members are healthy: first all have to trust it, then all have to present certificates of it,
 * then the former one goes. Members of another policy are replaced, which makes them read the authorities. Clients get time
 * to do so.
 */
export function rotate(cluster: Cluster): Step | undefined {
  const { object, tls, now, members = [] } = cluster
  const { auto } = object.spec.TLS ?? {}
  if (tls === undefined || auto === undefined) return undefined
  const { state, authorities } = tls
  const newest = newestOf(state)
  if (tls.isDrawing) return { ...rotating(`authority ${newest} is made`), after: 1 }
  if (authorities.find(({ number }) => number === newest)?.issuer === undefined)
    return begin(cluster, tls, `the Secret of authority ${newest} is gone`)
  const strangers = members.filter(({ answer }) => answer?.admits !== newest)
  const former = members.filter(({ answer }) => answer?.issuer !== state.authority)
  const isEarly = now.getTime() < overlapOf(state, auto.overlapMinutes)
  switch (state.phase) {
    case 'Trusting':
      if (strangers.some(({ pod, answer }) => answer?.refuses === newest && isOld(pod, now)))
        return begin(cluster, tls, `members ${said(strangers)} do not trust authority ${newest}`)
      if (strangers.length > 0 || !tls.isStored) return waits(strangers, `do not trust authority ${newest} yet`)
      return goes(`all members trust authority ${newest}`, toPhase(state, 'Trusted', now))
    case 'Trusted': {
      if (isEarly) return undefined
      if (strangers.length > 0) return waits(strangers, `do not trust authority ${newest} yet`)
      const issuing = { ...toPhase(state, 'Issuing', now), authority: newest, issuedAt: now.toISOString() }
      return goes(`authority ${newest} issues all certificates`, issuing)
    }
    case 'Issuing':
      if (former.length > 0 || !tls.isStored) return waits(former, `have no certificate of authority ${newest} yet`)
      return goes(`all members have certificates of authority ${newest}`, toPhase(state, 'Issued', now))
    case 'Issued': {
      if (isEarly) return undefined
      if (former.length > 0) return waits(former, `have no certificate of authority ${newest} yet`)
      const retiring = { ...toPhase(state, 'Retiring', now), trusted: [state.authority] }
      return goes(`authority ${newest} alone is trusted from now on`, retiring)
    }
    case 'Retiring':
      return goes(`all members trust authority ${newest} alone`, toPhase(state, 'Stable', now))
    case 'Preparing':
    case 'Stable':
      return startIfDue(cluster, tls, auto)
  }
}

/** A process that has not read the authorities by then does not do it any more: a kubelet may have mounted a former Secret. */
const READ_MS = 5 * MINUTE_MS
const isOld = (pod: PodObject | undefined, now: Date): boolean =>
  pod?.metadata.creationTimestamp !== undefined && now.getTime() - Date.parse(pod.metadata.creationTimestamp) > READ_MS

const goes = (message: string, tls: TlsState): Step => ({ ...rotating(message), tls })

/** No event tells that a member has read another file. */
const waits = (members: readonly Member[], what: string): Step => ({
  ...rotating(members.length > 0 ? `members ${said(members)} ${what}` : 'Secrets are written'),
  after: 5,
})

const rotating = (message: string): Step => ({ condition: 'Maintaining', reason: 'RotatingAuthority', message })

const overlapOf = ({ since }: TlsState, minutes: number): number => Date.parse(since) + minutes * MINUTE_MS

const ageOf = ({ begunAt }: TlsState, authorityDays: number): number => Date.parse(begunAt) + authorityDays * DAY_MS

type Auto = NonNullable<NonNullable<Cluster['object']['spec']['TLS']>['auto']>

function startIfDue(cluster: Cluster, tls: Tls, { rotation, authorityDays }: Auto): Step | undefined {
  const { state } = tls
  if (rotation > state.rotation) return begin(cluster, tls, `rotation ${rotation} is asked for`)
  if (cluster.now.getTime() < ageOf(state, authorityDays)) return undefined
  return begin(cluster, tls, `authority ${state.authority} is ${authorityDays} days old`)
}

/** One that is asked for meanwhile is this one. */
function begin({ object, now }: Cluster, { state }: Tls, why: string): Step {
  const number = newestOf(state) + 1
  const rotation = Math.max(state.rotation, object.spec.TLS?.auto?.rotation ?? 0)
  const trusting = { ...toPhase(state, 'Trusting', now), trusted: [...state.trusted, number], rotation }
  return goes(`${why}: authority ${number} is made`, { ...trusting, begunAt: now.toISOString() })
}

/** When something has to be done that no event tells. */
export function nextTlsTime({ object, tls, now }: Cluster): Date | undefined {
  const { auto } = object.spec.TLS ?? {}
  if (tls === undefined || auto === undefined) return undefined
  const { state } = tls
  const times = [
    ...(signerOf(tls) ? [renewalOf(state, auto.certificateDays)] : []),
    ...(state.phase === 'Stable' ? [ageOf(state, auto.authorityDays)] : []),
    ...(state.phase === 'Trusted' || state.phase === 'Issued' ? [overlapOf(state, auto.overlapMinutes)] : []),
  ]
  const next = Math.min(...times.filter((time) => time > now.getTime()))
  return Number.isFinite(next) ? new Date(next) : undefined
}

/** What is recorded, and until when things are valid. */
export function tlsStatus({ object, tls }: Cluster, step: Step | undefined): { TLS?: TlsState } {
  const state = step?.tls ?? object.status.TLS
  if (state === undefined) return {}
  const member = tls?.secrets.find(({ metadata }) => metadata.name === secretNameOf(object, 'member'))
  const certificate = textIn(member, 'server.crt')
  const authority = tls?.authorities.find(({ number }) => number === state.authority)?.certificate
  return {
    TLS: {
      ...state,
      ...(certificate !== '' && { certificatesUntil: endOf(certificate) }),
      ...(authority !== undefined && { authorityUntil: endOf(authority) }),
    },
  }
}
