import type { Agent } from 'node:http'
import type { KubeObject } from '#contracts'

/**
 * Returns the bearer token for the next request. It is called before each request, so it must be cheap. `rejected` is
 * the token that the server has just answered with 401: a source that can returns another token.
 */
export type TokenSource = (rejected?: string) => Promise<string | undefined>

/** The address and the credentials of an API server, from a kubeconfig or from the service account of a pod. */
export interface ClusterAccess {
  /** `https://host:port`, possibly with a path in front of the API. */
  server: string
  /** The certificate authorities in PEM. Default: the authorities of the system. */
  ca?: string | undefined
  /** The client certificate in PEM. `key` is required with it. */
  cert?: string | undefined
  key?: string | undefined
  token?: TokenSource | undefined
  /** Does not check the server's certificate. */
  insecure?: boolean | undefined
  /** The name to expect in the server's certificate. Default: the host of `server`. */
  serverName?: string | undefined
  /** The URL of the proxy between this process and the server. */
  proxy?: string | undefined
  /** Makes the connections in place of Node.js's own agents. A SOCKS proxy has one. */
  agent?: Agent | undefined
  /** Sent in each request, unless the request itself impersonates somebody. */
  headers?: Record<string, string | string[]> | undefined
  /** The namespace of the context, or of the pod. */
  namespace?: string | undefined
  /** The source of these values, for messages: `context lab of /home/me/.kube/config`. */
  origin?: string | undefined
}

export interface KubeClientOptions extends ClusterAccess, ClientOptions {
  /** The number of connections for requests. Each watch has a connection of its own in addition. Default 32. */
  maxSockets?: number | undefined
}

export interface ClientOptions extends Pick<ClusterAccess, 'token' | 'headers' | 'origin'> {
  userAgent: string
  /** The limit for a request and its complete answer, milliseconds. Watches have their own limit. Default 30000. */
  timeoutMs?: number | undefined
  /** Called once for each request that ends. The source of `rest_client_requests_total{code,method,host}`. */
  onRequest?: ((request: RequestReport) => void) | undefined
}

export interface RequestReport {
  /** Upper-case HTTP method. */
  method: string
  /** `host:port` of the server. */
  host: string
  /** HTTP status, or `<error>` if no answer came (as in client-go). */
  code: string
  path: string
}

export type Query = Record<string, string | number | boolean | undefined>

export interface RequestOptions {
  /** Cancels the request at once. The promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined
  timeoutMs?: number | undefined
  /** Additional headers, e.g. `impersonate-user`. */
  headers?: Record<string, string> | undefined
  /**
   * Called right before the request is sent. Returns the time within which the API server has to receive it, in milliseconds,
   * or throws because it is too late. Left out: within the time-out.
   */
  mayStart?: (() => number) | undefined
}

export interface KubeRequest extends RequestOptions {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** The absolute, escaped path: see resourcePath(). */
  path: string
  query?: Query | undefined
  body?: unknown
  /** The body as it is sent, instead of `body`. */
  text?: string | undefined
  /** Default `application/json`. */
  contentType?: string | undefined
  /** Default `application/json`. */
  accept?: string | undefined
  /** The limit of the answer. A larger answer is an AnswerTooLargeError. Default 256 MiB. */
  maxBytes?: number | undefined
  /** Uses a connection of its own, and closes it afterwards. */
  alone?: boolean
}

/** An answer that was read to its end. */
export interface Answer {
  code: number
  body: string
  /** The wait that the server asks for in its headers. */
  retryAfterSeconds: number | undefined
}

interface Selectors {
  labelSelector?: string | undefined
  fieldSelector?: string | undefined
}

export interface TextOptions extends RequestOptions {
  query?: Query | undefined
}

export interface GetOptions extends RequestOptions {
  resourceVersion?: string | undefined
  accept?: string | undefined
}

export interface ListOptions extends RequestOptions, Selectors {
  /** The number of objects per page. Default 500; fewer if the objects are large. */
  limit?: number | undefined
  /** Left out: the newest state. `'0'`: any state that the server has in its cache, without pages. */
  resourceVersion?: string | undefined
  resourceVersionMatch?: 'NotOlderThan' | 'Exact' | undefined
  accept?: string | undefined
  /**
   * Default false: all pages are of one version, and the list is expired if the server loses its history between two of them.
   * True: the pages that are left are then of a newer version.
   */
  mayMix?: boolean | undefined
  /** Called if a page cannot be read: the same page is asked for again after it, unless it rejects. Default: it rejects. */
  failed?: ((error: unknown) => Promise<void>) | undefined
}

export interface ListPage<T> {
  /** The objects, with apiVersion and kind, which the server leaves out of the items of built-in kinds. */
  items: T[]
  /** The version of the list. It is the same on every page, and a watch continues from it; not with `mayMix`. */
  resourceVersion: string
  /** The number of objects after this page, if the server counted them (it does not with selectors). */
  remaining?: number
}

export interface WatchOptions extends Selectors {
  /** Watches the changes after this version. Left out: the existing objects as ADDED, in any order, then changes. */
  resourceVersion?: string | undefined
  /** Default true. */
  allowBookmarks?: boolean | undefined
  /** The time after which the server ends the watch, seconds. The client closes it 5 s later. Default 290. */
  timeoutSeconds?: number | undefined
  /**
   * Ends the watch normally if the server has not sent anything, not even a bookmark, for so long while the client was
   * reading. There is no other sign of a watch that hangs. Left out: the watch may be silent until timeoutSeconds.
   */
  silenceSeconds?: number | undefined
  /** Called when the server has accepted the watch. */
  onOpen?: (() => void) | undefined
  /** Called for every chunk of the stream, with its size. */
  onBytes?: ((bytes: number) => void) | undefined
  /**
   * Streams the existing objects first, then a bookmark for which endsInitialEvents() holds (Kubernetes 1.32, beta).
   */
  sendInitialEvents?: boolean | undefined
  accept?: string | undefined
  signal?: AbortSignal | undefined
  headers?: Record<string, string> | undefined
}

/** A bookmark: the server has sent all changes up to this resourceVersion. */
export interface Bookmark {
  apiVersion: string
  kind: string
  metadata: { resourceVersion: string; annotations?: Record<string, string> }
}

export type WatchEvent<T> =
  | { type: 'ADDED' | 'MODIFIED' | 'DELETED'; object: T }
  | { type: 'BOOKMARK'; object: Bookmark }

export interface WriteOptions extends RequestOptions {
  fieldManager?: string | undefined
  /** The server checks and admits the object, but does not store it. */
  dryRun?: boolean | undefined
}

export interface ApplyOptions extends WriteOptions {
  fieldManager: string
  /** Takes over fields that another manager owns with other values. */
  force?: boolean | undefined
}

export interface DeleteOptions extends RequestOptions {
  /** Preconditions: 409 Conflict if the object was replaced, or has changed. */
  uid?: string | undefined
  resourceVersion?: string | undefined
  propagationPolicy?: 'Orphan' | 'Background' | 'Foreground' | undefined
  gracePeriodSeconds?: number | undefined
  dryRun?: boolean | undefined
}

export type PatchType = 'merge' | 'json' | 'strategic'

/** A failure's `Status` object, as the API server sends it. */
export interface Status {
  apiVersion: string
  kind: 'Status'
  status?: string
  code?: number
  reason?: string
  message?: string | undefined
  details?: StatusDetails
  metadata?: { continue?: string }
}

export interface StatusDetails {
  name?: string
  group?: string
  kind?: string
  uid?: string
  retryAfterSeconds?: number
  causes?: { reason?: string; message?: string; field?: string }[]
}

/**
 * A client of one API server. Objects are plain JSON: timestamps stay strings, unknown fields are kept. Every method
 * rejects with ApiError (the server's answer), ApiConnectionError (no complete answer) or the signal's reason. The
 * client repeats a request in two cases only: after a 401, if there is a new token; and a GET on a persistent
 * connection that the server had just closed.
 */
export interface KubeClient extends AsyncDisposable {
  /** `host:port`. */
  readonly host: string
  request<T>(request: KubeRequest): Promise<T>
  /** Returns the answer as it is, whatever its code. */
  answerTo(request: KubeRequest): Promise<Answer>
  /** Returns the body as text, for answers that are not JSON, such as the log of a pod. */
  text(path: string, options?: TextOptions): Promise<string>
  get<T = KubeObject>(path: string, options?: GetOptions): Promise<T>
  /**
   * Pages of one consistent snapshot. If the server has compacted the snapshot between two pages, list() throws an
   * error for which isExpired() holds: list again.
   */
  list<T = KubeObject>(path: string, options?: ListOptions): AsyncGenerator<ListPage<T>, void, undefined>
  /**
   * Changes in the order of the server. Reads only as fast as the consumer, which slows down the connection. Returns
   * when the server ends the watch at timeoutSeconds. Throws when the connection breaks; isExpired() holds if
   * resourceVersion is too old. Leaving the loop closes the connection.
   */
  watch<T = KubeObject>(path: string, options?: WatchOptions): AsyncGenerator<WatchEvent<T>, void, undefined>
  /** POST to a collection. isAlreadyExists() holds for the error if the name is taken. */
  create<T = KubeObject>(collection: string, object: object, options?: WriteOptions): Promise<T>
  /** Server-side apply. With `metadata.uid` in the object it never creates an object: Conflict (Kubernetes 1.36). */
  apply<T = KubeObject>(path: string, object: object, options: ApplyOptions): Promise<T>
  /** Server-side apply of `…/status`; `path` is the object's. A missing object is NotFound, and is not created. */
  applyStatus<T = KubeObject>(path: string, object: object, options: ApplyOptions): Promise<T>
  patch<T = KubeObject>(path: string, patch: object, type: PatchType, options?: WriteOptions): Promise<T>
  /** PUT. With `metadata.resourceVersion` in the object, Conflict if the stored object has changed. */
  replace<T = KubeObject>(path: string, object: object, options?: WriteOptions): Promise<T>
  /** Returns the object if it still exists (finalizers, grace period). Otherwise the answer may be a Status. */
  delete(path: string, options?: DeleteOptions): Promise<KubeObject | Status>
  /**
   * Returns a client of the same server over the same connections, as another user. The credentials of this client must
   * be allowed to impersonate that user. A service account's groups follow from its name (Kubernetes 1.36).
   */
  as(user: string): KubeClient
  /** Returns a client that sends these headers in each request, and asks `mayStart` before each. */
  with(headers: Record<string, string>, mayStart?: RequestOptions['mayStart']): KubeClient
  /** Closes every connection, also those in use: their requests and watches fail. */
  close(): Promise<void>
}
