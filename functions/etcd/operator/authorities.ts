import { X509Certificate } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { signCertificate } from '#pki'
import {
  type Issuer,
  issued,
  pemOf,
  secretNameOf,
  secretOf,
  signingKeysFrom,
  storedIn,
  textIn,
  USES,
  validity,
} from './certificates.ts'
import { named, type SecretObject } from './parts.ts'
import type { ClusterObject } from './resource.ts'

export type TlsState = NonNullable<ClusterObject['status']['TLS']>
type AutoTls = NonNullable<NonNullable<ClusterObject['spec']['TLS']>['auto']>
type Use = keyof typeof USES

/** An authority of one cluster. Its number is never used again. */
export interface Authority {
  number: number
  certificate: string
  /** Undefined: its Secret is missing, and it can sign no more certificates. */
  issuer: Issuer | undefined
}

/** The TLS state of a cluster whose function is its authority. */
export interface Tls {
  state: TlsState
  auto: AutoTls
  /** The authorities that are trusted and stored. */
  authorities: readonly Authority[]
  /** The certificates of the authorities, as members and clients have them. */
  bundle: string
  /** The desired Secrets. */
  secrets: readonly SecretObject[]
  /** True: the newest authority was generated and is not stored yet. */
  isDrawing: boolean
  /** True: all Secrets are as desired. */
  isStored: boolean
  /** A description of the Secrets that are lost and cannot be made again. */
  lost: string | undefined
}

const authorityNameOf = ({ metadata }: ClusterObject, number: number): string => `${metadata.name}-ca-${number}`

const subjectOf = ({ metadata }: ClusterObject, number: number) => ({
  cn: `${metadata.name} CA ${number}`,
  o: [metadata.uid ?? ''],
})

/** Returns the number of the authority in the name of a certificate's issuer or subject. */
export const numberIn = (name: string): number | undefined => {
  const [, number] = /^CN=.* CA (\d+)$/m.exec(name) ?? []
  return number === undefined ? undefined : Number(number)
}

export const newestOf = ({ trusted }: Pick<TlsState, 'trusted'>): number => Math.max(...trusted)

/**
 * Returns the TLS state that follows from the recorded state and the stored Secrets. A new authority is generated only
 * while it is not trusted yet, and a stored one takes precedence.
 */
export function tlsOf(
  object: ClusterObject,
  stored: readonly SecretObject[],
  draw: (name: string) => string,
): Tls | undefined {
  const state = object.status.TLS
  const auto = object.spec.TLS?.auto
  if (auto === undefined || state === undefined) return undefined
  const authorities = state.trusted.flatMap((number) => storedAuthority(object, stored, number) ?? [])
  const [missing] = state.trusted.filter((number) => authorities.every((one) => one.number !== number))
  const bundle = authorities.map(({ certificate }) => certificate).join('')
  const known = { state, auto, authorities, bundle, isDrawing: false, isStored: false }
  if (missing === undefined) return { ...known, ...withLeaves(object, stored, known) }
  if (state.phase === 'Preparing' || (state.phase === 'Trusting' && missing === newestOf(state))) {
    const secrets = [...kept(stored), drawnAuthority(object, missing, state, draw)]
    return { ...known, secrets, isDrawing: true, lost: undefined }
  }
  return { ...known, secrets: kept(stored), lost: `authority ${missing} is in no Secret any more` }
}

/** Returns Secrets unchanged, without the fields that the API server adds. */
export const kept = (secrets: readonly SecretObject[]): SecretObject[] =>
  secrets.map(({ apiVersion, kind, metadata: { name, labels }, type, data, immutable }) => ({
    apiVersion,
    kind,
    metadata: { name, ...(labels && { labels }) },
    ...(type !== undefined && { type }),
    ...(data && { data }),
    ...(immutable !== undefined && { immutable }),
  }))

export function storedAuthority(
  object: ClusterObject,
  stored: readonly SecretObject[],
  number: number,
): Authority | undefined {
  const secret = named(stored, authorityNameOf(object, number))
  if (secret !== undefined) {
    const issuer = { subject: subjectOf(object, number), key: textIn(secret, 'tls.key') }
    return { number, certificate: textIn(secret, 'tls.crt'), issuer }
  }
  const certificate = bundlesIn(object, stored).find((one) => numberIn(new X509Certificate(one).subject) === number)
  return certificate === undefined ? undefined : { number, certificate, issuer: undefined }
}

/** Returns each certificate of an authority that members or clients have received. */
function bundlesIn(object: ClusterObject, stored: readonly SecretObject[]): string[] {
  const texts = usesOf().map((use) => textIn(named(stored, secretNameOf(object, use)), USES[use].bundle))
  return texts.flatMap((text) => text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----\n/g) ?? [])
}

const usesOf = (): Use[] => Object.keys(USES) as Use[]

/**
 * Returns a new authority. It is valid for twice the time after which it is replaced, because a replacement waits until
 * all members are healthy.
 */
function drawnAuthority(
  object: ClusterObject,
  number: number,
  { begunAt }: TlsState,
  draw: (name: string) => string,
): SecretObject {
  const { authorityDays = 0, certificateDays = 0 } = object.spec.TLS?.auto ?? {}
  const keys = signingKeysFrom(draw(`authority ${number}`))
  const subject = subjectOf(object, number)
  const certificate = signCertificate({
    subject,
    issuer: { subject, ...keys },
    publicKey: keys.publicKey,
    isCa: true,
    serial: Buffer.from(number.toString(16).padStart(8, '0'), 'hex'),
    ...validity(begunAt, 2 * authorityDays + certificateDays),
  })
  const texts = { 'tls.crt': certificate, 'tls.key': pemOf(keys.privateKey) }
  return secretOf(object, authorityNameOf(object, number), texts, { type: 'kubernetes.io/tls', immutable: true })
}

function withLeaves(
  object: ClusterObject,
  stored: readonly SecretObject[],
  { state, authorities, bundle }: Pick<Tls, 'state' | 'authorities' | 'bundle'>,
): Pick<Tls, 'secrets' | 'isStored' | 'lost'> {
  const names = state.trusted.map((number) => authorityNameOf(object, number))
  const own = kept(stored).filter(({ metadata }) => names.includes(metadata.name))
  if (state.phase === 'Preparing') return { secrets: own, isStored: true, lost: undefined }
  const issuer = authorities.find(({ number }) => number === state.authority)?.issuer
  const during = validity(state.issuedAt, object.spec.TLS?.auto?.certificateDays ?? 0)
  const leaves = usesOf().map((use) => {
    const name = secretNameOf(object, use)
    const texts = issuer ? issued(object, use, issuer, during) : storedIn(named(stored, name), use)
    return { use, name, secret: texts && secretOf(object, name, { ...texts, [USES[use].bundle]: bundle }) }
  })
  const lost = leaves.find(({ use, secret }) => secret === undefined && use !== 'client')
  const isStored = leaves.every(({ name, secret }) => isDeepStrictEqual(named(stored, name)?.data, secret?.data))
  return {
    secrets: [...own, ...leaves.flatMap(({ secret }) => secret ?? [])],
    isStored,
    lost: lost && `Secret ${lost.name} is gone, and so is authority ${state.authority}, which could issue it again`,
  }
}

/** Returns the issuer of certificates. Undefined: no certificate can be issued. */
export const signerOf = ({ state, authorities }: Tls): Issuer | undefined =>
  authorities.find(({ number }) => number === state.authority)?.issuer
