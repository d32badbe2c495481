import { newestOf, signerOf, type Tls, type TlsState } from './authorities.ts'
import { endOf, secretNameOf, textIn } from './certificates.ts'
import type { Cluster, Led, Member } from './cluster.ts'
import { named, type PodObject } from './parts.ts'
import { beginRestore } from './restoration.ts'
import { refuse, type Step, said } from './step.ts'

const DAY_MS = 86_400_000
const MINUTE_MS = 60_000

/** Prepares the authority. This rule comes first, because every other step needs certificates. */
export function prepareTls(cluster: Cluster): Step | undefined {
  const { object, tls, now } = cluster
  const { auto } = object.spec.TLS ?? {}
  const { TLS: state, clusterID } = object.status
  if ((auto === undefined) !== (state === undefined) && (state !== undefined || clusterID !== undefined))
    return refuse(
      'TLSDiffers',
      `spec.TLS.auto cannot be ${auto ? 'added' : 'removed'} later: ${auto ? 'remove it' : 'put it back'}`,
    )
  if (auto === undefined) return undefined
  const step = { reason: 'PreparingTLS', message: 'the authority of the cluster is made' }
  if (state === undefined || tls === undefined) return { ...step, tls: first(1, auto.rotation, now) }
  if (tls.lost !== undefined) return startOver(cluster, tls) ?? refuse('SecretsLost', `${tls.lost}. ${WAYS_BACK}`)
  if (state.phase !== 'Preparing') return undefined
  // The inputs of the authority differ from run to run, so no step relies on it before it is stored.
  return tls.isDrawing
    ? { ...step, after: 1 }
    : { ...step, tls: { ...state, phase: 'Stable', since: now.toISOString() } }
}

/**
 * Appended to the message about lost Secrets. New certificates would cut off the running members, which trust no other
 * authority.
 */
const WAYS_BACK =
  'Members and clients go on with the certificates that they have, and no other ones are made. Put the Secrets back, or ' +
  'restore a backup'

const first = (number: number, rotation: number, now: Date): TlsState => {
  const at = now.toISOString()
  return { phase: 'Preparing', authority: number, trusted: [number], rotation, since: at, begunAt: at, issuedAt: at }
}

/** Returns a first authority if no member exists, or a snapshot replaces the existing ones. */
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

export function renewTls({ tls, now }: Cluster): Step | undefined {
  if (tls === undefined || now.getTime() < timesOf(tls).renewal) return undefined
  const message = `certificates of ${tls.state.issuedAt} are issued again`
  return { reason: 'RenewingCertificates', message, tls: { ...tls.state, issuedAt: now.toISOString() } }
}

/**
 * Replaces the authority while all members are healthy. First all members must trust the new one, then all must present
 * its certificates, then the former one is removed. Members with another policy are replaced, so that they read the
 * authorities. Clients have the time of the overlap to do so.
 */
export function rotate({ tls, now, members }: Led): Step | undefined {
  if (tls === undefined) return undefined
  const { state, authorities } = tls
  const newest = newestOf(state)
  if (tls.isDrawing) return { ...rotating(`authority ${newest} is made`), after: 1 }
  if (authorities.find(({ number }) => number === newest)?.issuer === undefined)
    return begin(tls, now, `the Secret of authority ${newest} is gone`)
  const strangers = members.filter(({ answer }) => answer?.admits !== newest)
  const former = members.filter(({ answer }) => answer?.issuer !== state.authority)
  const isEarly = now.getTime() < timesOf(tls).overlap
  switch (state.phase) {
    case 'Trusting':
      if (strangers.some(({ pod, answer }) => answer?.refuses === newest && isOld(pod, now)))
        return begin(tls, now, `members ${said(strangers)} do not trust authority ${newest}`)
      if (strangers.length > 0 || !tls.isStored) return waits(strangers, `do not trust authority ${newest} yet`)
      return goes(tls, now, { phase: 'Trusted' }, `all members trust authority ${newest}`)
    case 'Trusted': {
      if (isEarly) return undefined
      if (strangers.length > 0) return waits(strangers, `do not trust authority ${newest} yet`)
      const issuing: Change = { phase: 'Issuing', authority: newest, issuedAt: now.toISOString() }
      return goes(tls, now, issuing, `authority ${newest} issues all certificates`)
    }
    case 'Issuing':
      if (former.length > 0 || !tls.isStored) return waits(former, `have no certificate of authority ${newest} yet`)
      return goes(tls, now, { phase: 'Issued' }, `all members have certificates of authority ${newest}`)
    case 'Issued': {
      if (isEarly) return undefined
      if (former.length > 0) return waits(former, `have no certificate of authority ${newest} yet`)
      const retiring: Change = { phase: 'Retiring', trusted: [state.authority] }
      return goes(tls, now, retiring, `authority ${newest} alone is trusted from now on`)
    }
    case 'Retiring':
      return goes(tls, now, { phase: 'Stable' }, `all members trust authority ${newest} alone`)
    case 'Preparing':
    case 'Stable':
      return startIfDue(tls, now)
  }
}

/**
 * How long a member may take to read the authorities. A process that has not read them after this time will not do so:
 * the kubelet may have mounted a former Secret.
 */
const READ_MS = 5 * MINUTE_MS
const isOld = (pod: PodObject | undefined, now: Date): boolean =>
  pod?.metadata.creationTimestamp !== undefined && now.getTime() - Date.parse(pod.metadata.creationTimestamp) > READ_MS

type Change = Partial<TlsState>

const rotating = (message: string): Step => ({ reason: 'RotatingAuthority', message })

const goes = ({ state }: Tls, now: Date, change: Change, message: string): Step => ({
  ...rotating(message),
  tls: { ...state, since: now.toISOString(), ...change },
})

/** Returns a step that polls, because no event reports that a member has read another file. */
const waits = (members: readonly Member[], what: string): Step => ({
  ...rotating(members.length > 0 ? `members ${said(members)} ${what}` : 'Secrets are written'),
  after: 5,
})

function startIfDue(tls: Tls, now: Date): Step | undefined {
  const { state, auto } = tls
  if (auto.rotation > state.rotation) return begin(tls, now, `rotation ${auto.rotation} is asked for`)
  if (now.getTime() < timesOf(tls).replacement) return undefined
  return begin(tls, now, `authority ${state.authority} is ${auto.authorityDays} days old`)
}

/** Begins a rotation. A rotation that is requested meanwhile is satisfied by this one. */
function begin(tls: Tls, now: Date, why: string): Step {
  const { state, auto } = tls
  const number = newestOf(state) + 1
  const rotation = Math.max(state.rotation, auto.rotation)
  const trusted = [...state.trusted, number]
  const trusting: Change = { phase: 'Trusting', trusted, rotation, begunAt: now.toISOString() }
  return goes(tls, now, trusting, `${why}: authority ${number} is made`)
}

/** Returns the times of steps that no event announces, in milliseconds since 1970. Infinite: not waited for. */
function timesOf(tls: Tls): { renewal: number; replacement: number; overlap: number } {
  const { auto } = tls
  const { phase, issuedAt, begunAt, since } = tls.state
  const after = (isAwaited: boolean, from: string, ms: number): number =>
    isAwaited ? Date.parse(from) + ms : Number.POSITIVE_INFINITY
  return {
    // Certificates are renewed after two thirds of their lifetime. Members and clients read the new ones in the last
    // third.
    renewal: after(signerOf(tls) !== undefined, issuedAt, (auto.certificateDays * DAY_MS * 2) / 3),
    replacement: after(phase === 'Stable', begunAt, auto.authorityDays * DAY_MS),
    overlap: after(phase === 'Trusted' || phase === 'Issued', since, auto.overlapMinutes * MINUTE_MS),
  }
}

export function nextTlsTime({ tls, now }: Cluster): Date | undefined {
  if (tls === undefined) return undefined
  const next = Math.min(...Object.values(timesOf(tls)).filter((time) => time > now.getTime()))
  return Number.isFinite(next) ? new Date(next) : undefined
}

/** Returns the recorded state, and when authorities and certificates expire. */
export function tlsStatus({ object, tls }: Cluster, step: Step | undefined): { TLS?: TlsState } {
  const state = step?.tls ?? object.status.TLS
  if (state === undefined) return {}
  const member = named(tls?.secrets ?? [], secretNameOf(object, 'member'))
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
