import { X509Certificate } from 'node:crypto'
import type { PodObject, SecretObject } from '../../../../functions/etcd/operator/parts.ts'
import type { Seen } from '../../../../functions/etcd/operator/seen.ts'
import type { EtcdWorld } from './world.ts'

/** How often a kubelet brings changed Secrets into the volumes of a pod, in seconds. */
const PROJECTION_S = 90

type Files = Readonly<Record<string, string>>

const decoded = new WeakMap<SecretObject, Files>()
function filesOf(secret: SecretObject | undefined): Files | undefined {
  if (secret === undefined) return undefined
  const known = decoded.get(secret)
  if (known !== undefined) return known
  const texts = Object.entries(secret.data ?? {}).map(([key, text]) => [key, Buffer.from(text, 'base64').toString()])
  const files = Object.fromEntries(texts) as Files
  decoded.set(secret, files)
  return files
}

const parsed = new Map<string, X509Certificate[]>()
function certificatesIn(pem: string): X509Certificate[] {
  const known = parsed.get(pem)
  if (known !== undefined) return known
  const found = (pem.match(/-----BEGIN[^-]*-----[^-]*-----END[^-]*-----\n/g) ?? []).map(
    (one) => new X509Certificate(one),
  )
  parsed.set(pem, found)
  return found
}

const ends = new Map<string, number>()
/** When its validity ends; no certificate: long ago. */
function endOf(certificate: string): number {
  const known = ends.get(certificate) ?? Date.parse(certificatesIn(certificate)[0]?.validTo ?? '1970-01-01')
  ends.set(certificate, known)
  return known
}

const verdicts = new Map<string, Map<string, boolean>>()
function isSignedByOneOf(bundle: string, certificate: string): boolean {
  const ofBundle = verdicts.get(bundle) ?? new Map<string, boolean>()
  verdicts.set(bundle, ofBundle)
  const known = ofBundle.get(certificate)
  if (known !== undefined) return known
  const [leaf] = certificatesIn(certificate)
  const verdict =
    leaf !== undefined && certificatesIn(bundle).some((ca) => leaf.checkIssued(ca) && leaf.verify(ca.publicKey))
  ofBundle.set(certificate, verdict)
  return verdict
}

/**
 * Computes which process accepts the certificate of which other one. Processes read their authorities at the start and
 * certificates at each handshake, from volumes that a kubelet updates some time after the Secret. Judges with the real
 * certificates.
 */
export class Trust {
  readonly #world: EtcdWorld
  readonly #volumes = new Map<string, { uid: string | undefined; files: Files }>()
  /** What a process has read when it started, by the name of its member. */
  readonly #loaded = new Map<string, string>()
  /** The next pod gets the Secret as it was before its last change. */
  isMountStale = false
  #former: { stored: SecretObject | undefined; before: SecretObject | undefined } = {
    stored: undefined,
    before: undefined,
  }
  #client: { files: Files; readAt: number } | undefined

  constructor(world: EtcdWorld) {
    this.#world = world
  }

  /** False: the pod waits for its Secret. */
  mount({ metadata: { name, uid }, spec }: PodObject): boolean {
    const secretName = spec?.volumes?.find(({ name }) => name === 'member-tls')?.secret?.secretName
    if (secretName === undefined) return true
    const mounted = this.#volumes.get(name)
    if (mounted?.uid === uid) return true
    this.#remember()
    const isStale = this.isMountStale && this.#former.before !== undefined
    if (isStale) this.isMountStale = false
    const files = filesOf(isStale ? this.#former.before : this.#world.stored.secrets.get(secretName))
    if (files !== undefined) this.#volumes.set(name, { uid, files })
    return files !== undefined
  }

  #remember(): SecretObject | undefined {
    const member = this.#world.stored.secrets.get('ex-member-tls')
    if (member !== this.#former.stored) this.#former = { stored: member, before: this.#former.stored }
    return member
  }

  started(name: string): void {
    const files = this.#volumes.get(name)?.files
    if (files !== undefined) this.#loaded.set(name, files['ca.crt'] ?? '')
  }

  reaches = (one: string, other: string): boolean => {
    const [a, b] = [this.#volumes.get(one)?.files, this.#volumes.get(other)?.files]
    if (one === other || a === undefined || b === undefined) return true
    return this.#takes(one, b['peer.crt']) && this.#takes(other, a['peer.crt'])
  }

  #takes = (name: string, certificate = ''): boolean => this.#holds(this.#loaded.get(name) ?? '', certificate)

  #holds = (bundle: string, certificate = ''): boolean => {
    return this.#world.now.getTime() < endOf(certificate) && isSignedByOneOf(bundle, certificate)
  }

  /** Receives the answers to the function, which calls members with its own certificate. */
  hear({ answers }: Seen): void {
    const { stored } = this.#world
    const state = stored.status['TLS'] as { phase: string; trusted: number[] } | undefined
    if (state === undefined) return
    const operator = filesOf(stored.secrets.get('ex-operator-tls'))
    const newest = Math.max(...state.trusted)
    const authority = filesOf(stored.secrets.get(`ex-ca-${newest}`))?.['tls.crt']
    for (const [name, answer] of Object.entries(answers)) {
      const server = this.#volumes.get(name)?.files['server.crt'] ?? ''
      const isHeard =
        this.#takes(name, operator?.['etcd-client.crt']) && this.#holds(operator?.['etcd-client-ca.crt'] ?? '', server)
      if (!isHeard) {
        delete answers[name]
        continue
      }
      answer.issuer = Number(/CA (\d+)$/m.exec(certificatesIn(server)[0]?.issuer ?? '')?.[1])
      const isKnown = authority !== undefined && (this.#loaded.get(name) ?? '').includes(authority)
      if (state.phase.startsWith('Trust') && authority)
        Object.assign(answer, isKnown ? { admits: newest } : { refuses: newest })
    }
  }

  /** A second of the kubelets and of a client that reads its Secret as often as it has to. */
  pass(): void {
    const { etcd, stored, object } = this.#world
    const member = this.#remember()
    let offset = 0
    for (const [name, volume] of this.#volumes) {
      offset += 23
      const files = filesOf(member)
      if (files !== undefined && (etcd.now + offset) % PROJECTION_S === 0) this.#volumes.set(name, { ...volume, files })
    }
    // It has to begin again as well.
    if (stored.status['restoring'] !== undefined) this.#client = undefined
    const overlapS = (object.spec.TLS?.auto?.overlapMinutes ?? 0) * 60
    const files = filesOf(stored.secrets.get('ex-client-tls'))
    if (files !== undefined && etcd.now - (this.#client?.readAt ?? Number.NEGATIVE_INFINITY) >= overlapS)
      this.#client = { files, readAt: etcd.now }
  }

  /** The members that cannot connect. */
  get faults(): string[] {
    const { etcd, stored } = this.#world
    // Members of before a restore are let go.
    if (stored.status['restoring'] !== undefined) return []
    const isUp = (name: string): boolean => etcd.processes.get(name)?.isUp === true && this.#loaded.has(name)
    const running = etcd.members.map(({ name }) => name).filter(isUp)
    const operator = filesOf(stored.secrets.get('ex-operator-tls'))
    const client = this.#client?.files
    const isServed = (name: string, certificate = '', bundle = ''): boolean =>
      this.#takes(name, certificate) && this.#holds(bundle, this.#volumes.get(name)?.files['server.crt'])
    const distrusts = running.some((one) => running.some((other) => !this.reaches(one, other)))
    const isCutOff = (files: Files | undefined, certificate: string, bundle: string): boolean =>
      files !== undefined && running.some((name) => !isServed(name, files[certificate], files[bundle]))
    return [
      ...(distrusts ? ['members distrust each other'] : []),
      ...(isCutOff(operator, 'etcd-client.crt', 'etcd-client-ca.crt') ? ['the function is cut off'] : []),
      ...(isCutOff(client, 'tls.crt', 'ca.crt') ? ['a client is cut off'] : []),
    ]
  }
}
