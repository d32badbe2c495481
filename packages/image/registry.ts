import { isIP } from 'node:net'
import { doubling, retry } from '#primitives'
import { type Blob, blob, type Descriptor, DigestMismatchError, digestOf, MANIFESTS, RegistryError } from './blob.ts'
import { authorizationFor, type Credentials, credentialsFor, parseChallenge } from './credentials.ts'
import { nameOf, type Reference } from './reference.ts'

const ATTEMPTS = 3
const FIRST_PAUSE_MS = 300
const MAX_MANIFEST_BYTES = 4 * 2 ** 20

export interface RepositoryOptions {
  /** Uses HTTP without TLS. Addresses of this machine always do. */
  plainHttp?: boolean
  /** The actions for which tokens are requested. */
  actions?: 'pull' | 'pull,push'
  /** A repository of the same registry that has parts of the image. */
  mountsFrom?: string
  env?: NodeJS.ProcessEnv
}

/** One repository of a registry, by the OCI distribution protocol. */
export class Repository {
  readonly reference: Reference
  readonly #origin: string
  readonly #scopes: string[]
  readonly #credentials: () => Promise<Credentials | undefined>
  #authorization: string | undefined
  /** Whether the registry has answered before. One that never has is not asked again: an absent network stays absent. */
  #answers = false

  constructor(reference: Reference, { plainHttp = false, actions = 'pull', mountsFrom, env }: RepositoryOptions = {}) {
    const host = reference.registry === 'docker.io' ? 'registry-1.docker.io' : reference.registry
    this.reference = reference
    this.#origin = `${plainHttp || isLoopback(host) ? 'http' : 'https'}://${host}`
    this.#scopes = [
      `repository:${reference.repository}:${actions}`,
      ...(mountsFrom === undefined ? [] : [`repository:${mountsFrom}:pull`]),
    ]
    let credentials: Promise<Credentials | undefined> | undefined
    this.#credentials = () => (credentials ??= credentialsFor(reference, env))
  }

  /** Returns a manifest or an index. For a digest, verifies the contents. */
  async manifest(tagOrDigest: string): Promise<Blob> {
    const answer = await this.#send('GET', this.#path(`manifests/${tagOrDigest}`), {
      headers: { accept: MANIFESTS.join(', ') },
    })
    const bytes = Buffer.from(await answer.arrayBuffer())
    if (bytes.length > MAX_MANIFEST_BYTES)
      throw new RegistryError(`the manifest ${tagOrDigest} of ${this.#name} is too long`)
    if (tagOrDigest.startsWith('sha256:')) this.#verify(bytes, tagOrDigest)
    const { mediaType } = JSON.parse(bytes.toString()) as { mediaType?: string }
    return blob(mediaType ?? answer.headers.get('content-type') ?? '', bytes)
  }

  async read({ digest, size }: Descriptor): Promise<Buffer<ArrayBuffer>> {
    const answer = await this.#send('GET', this.#path(`blobs/${digest}`))
    const bytes = Buffer.from(await answer.arrayBuffer())
    if (bytes.length !== size)
      throw new DigestMismatchError(`${digest} of ${this.#name} has ${bytes.length} bytes, not ${size}`)
    this.#verify(bytes, digest)
    return bytes
  }

  async has(digest: string): Promise<boolean> {
    const answer = await this.#send('HEAD', this.#path(`blobs/${digest}`), { passes: [404] })
    return answer.ok
  }

  /**
   * Takes a part over from another repository of the same registry. Returns false if the registry does not, and the
   * part has to be uploaded.
   */
  async mount(digest: string, from: string): Promise<boolean> {
    const query = new URLSearchParams({ mount: digest, from })
    const answer = await this.#send('POST', this.#path(`blobs/uploads/?${query}`), { passes: [400, 404, 405] })
    return answer.status === 201
  }

  async push(part: Blob): Promise<void> {
    const begun = await this.#send('POST', this.#path('blobs/uploads/'))
    const location = new URL(begun.headers.get('location') ?? '', this.#origin)
    location.searchParams.set('digest', part.digest)
    await this.#send('PUT', location, { body: part.bytes, headers: { 'content-type': 'application/octet-stream' } })
  }

  /** Returns whether the registry lists the manifest among the referrers of its subject. */
  async pushManifest(manifest: Blob, tagOrDigest = manifest.digest): Promise<boolean> {
    const answer = await this.#send('PUT', this.#path(`manifests/${tagOrDigest}`), {
      body: manifest.bytes,
      headers: { 'content-type': manifest.mediaType },
    })
    return answer.headers.get('oci-subject') !== null
  }

  get #name(): string {
    return nameOf({ registry: this.reference.registry, repository: this.reference.repository })
  }

  #verify(bytes: Buffer, digest: string): void {
    const found = digestOf(bytes)
    if (found !== digest) throw new DigestMismatchError(`${this.#name} has sent ${found} in place of ${digest}`)
  }

  #path(rest: string): URL {
    return new URL(`/v2/${this.reference.repository}/${rest}`, this.#origin)
  }

  /** Retries requests after temporary errors. If a registry rejects the repeated PUT of an upload, the command fails. */
  async #send(method: string, url: URL, request: Request = {}): Promise<Response> {
    const pauseMs = doubling(FIRST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** ATTEMPTS)
    let attempts = 0
    return retry(() => this.#once(method, url, request), {
      pauseMs: (error) => {
        attempts += 1
        const { status } = error as RegistryError
        const isPassing =
          error instanceof RegistryError && (status === undefined ? this.#answers : status === 429 || status >= 500)
        return isPassing && attempts < ATTEMPTS ? pauseMs() : undefined
      },
    })
  }

  async #once(method: string, url: URL, request: Request): Promise<Response> {
    const first = await this.#fetch(method, url, request)
    const challenge = first.status === 401 ? parseChallenge(first.headers.get('www-authenticate')) : undefined
    if (challenge === undefined || url.origin !== this.#origin) return this.#accepted(method, url, first, request)
    await first.body?.cancel()
    this.#authorization = await authorizationFor(challenge, {
      origin: this.#origin,
      scopes: this.#scopes,
      credentials: await this.#credentials(),
    })
    return this.#accepted(method, url, await this.#fetch(method, url, request), request)
  }

  /** Sends credentials to the registry only: it may name another host for an upload. */
  async #fetch(method: string, url: URL, { headers, body }: Request): Promise<Response> {
    const authorization = url.origin === this.#origin ? this.#authorization : undefined
    try {
      const answer = await fetch(url, {
        method,
        headers: { ...headers, ...(authorization !== undefined && { authorization }) },
        ...(body && { body }),
      })
      this.#answers = true
      return answer
    } catch (error) {
      throw new RegistryError(`the registry ${this.reference.registry} cannot be reached: ${this.#reason(error)}`, {
        cause: error,
      })
    }
  }

  async #accepted(method: string, url: URL, answer: Response, { passes = [] }: Request): Promise<Response> {
    if (answer.ok || passes.includes(answer.status)) {
      if (method !== 'GET') await answer.body?.cancel()
      return answer
    }
    const { status } = answer
    const said = refusal(await answer.text())
    const cure = {
      401: `: log in to it, e.g. docker login ${this.reference.registry}`,
      403: `: log in to it with an account that may, e.g. docker login ${this.reference.registry}`,
    }[status]
    const what = method === 'GET' || method === 'HEAD' ? 'does not give' : 'does not take'
    const part = url.pathname.split('/').slice(-2).join('/')
    throw new RegistryError(
      `${this.reference.registry} ${what} ${part} of ${this.#name} (${status}${said})${cure ?? ''}`,
      { status },
    )
  }

  #reason(error: unknown): string {
    const { cause, message } = error as Error & { cause?: Error & { code?: string } }
    const reason = cause?.message || cause?.code || message
    const speaksHttp =
      this.#origin.startsWith('https:') && /SSL|TLS|EPROTO|packet length/i.test(`${cause?.code} ${reason}`)
    return speaksHttp ? `${reason.trim()}: if it has no TLS, give --plain-http` : reason.trim()
  }
}

interface Request {
  headers?: Record<string, string>
  body?: Buffer<ArrayBuffer>
  /** Further statuses that count as success. */
  passes?: number[]
}

function isLoopback(host: string): boolean {
  const { hostname } = new URL(`http://${host}`)
  return hostname === 'localhost' || hostname === '[::1]' || (isIP(hostname) === 4 && hostname.startsWith('127.'))
}

/** Returns the registry's error message, in the format of the distribution protocol. */
function refusal(body: string): string {
  try {
    const { errors } = JSON.parse(body) as { errors?: { code?: string; message?: string }[] }
    const said = errors?.map(({ code, message }) => message || code).join(', ')
    return said ? `, ${said}` : ''
  } catch {
    return ''
  }
}
