import type { KubeObject } from '#contracts'

/**
 * Gives the bearer token for the next request. Called before each one, so it has to be cheap; `rejected` is the token
 * that the server has just answered with 401: a source that can, returns another one.
 */
export type TokenSource = (rejected?: string) => Promise<string | undefined>

/** Where an API server is and how to be let in: what a kubeconfig or a pod's service account says. */
export interface ClusterAccess {
  /** `https://host:port`, possibly with a path in front of the API. */
  server: string
  /** PEM. Without it the system's authorities count. */
  ca?: string | undefined
  /** PEM of the client certificate, with `key`. */
  cert?: string | undefined
  key?: string | undefined
  token?: TokenSource | undefined
  /** The server's certificate is not checked. */
  insecure?: boolean | undefined
  /** Name to expect in the server's certificate instead of the host of `server`. */
  serverName?: string | undefined
  /** The namespace of the context, or of the pod. */
  namespace?: string | undefined
  /** Where all this was read, for messages: `context lab of /home/me/.kube/config`. */
  origin?: string | undefined
}

export interface KubeClientOptions extends ClusterAccess {
  userAgent: string
  /** For a request and its whole answer, milliseconds; watches have their own bound. Default 30000. */
  timeoutMs?: number | undefined
  /** Connections for requests; each watch has one more of its own. Default 32. */
  maxSockets?: number | undefined
  /** Called once for each request that ends: `rest_client_requests_total{code,method,host}`. */
  onRequest?: ((request: RequestReport) => void) | undefined
}

export interface RequestReport {
  /** Upper-case HTTP method. */
  method: string
  /** `host:port` of the server. */
  host: string
  /** HTTP status, or `<error>` where there was no answer (as client-go counts it). */
  code: string
  path: string
}

export type Query = Record<string, string | number | boolean | undefined>

export interface RequestOptions {
  /** Aborts at once; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined
  timeoutMs?: number | undefined
  /** e.g. `impersonate-user`. */
  headers?: Record<string, string> | undefined
}

export interface KubeRequest extends RequestOptions {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Absolute, escaped: see resourcePath(). */
  path: string
  query?: Query | undefined
  body?: unknown
  /** Default `application/json`. */
  contentType?: string | undefined
  /** Default `application/json`. */
  accept?: string | undefined
  /** A larger answer is an AnswerTooLargeError. Default 256 MiB. */
  maxBytes?: number | undefined
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
  /** Objects per page. Default 500; fewer where these are large. */
  limit?: number | undefined
  /** Left out: the newest state. `'0'`: whatever the server has in its cache, then without pages. */
  resourceVersion?: string | undefined
  resourceVersionMatch?: 'NotOlderThan' | 'Exact' | undefined
  accept?: string | undefined
}

export interface ListPage<T> {
  /** With apiVersion and kind, which the server leaves out of the items of built-in kinds. */
  items: T[]
  /** Of the list: the same on every page, and where a watch goes on. */
  resourceVersion: string
  /** Objects after this page, when the server counted them (it does not with selectors). */
  remaining?: number
}

export interface WatchOptions extends Selectors {
  /** Changes after this version; left out: the present objects as ADDED, in any order, then changes. */
  resourceVersion?: string | undefined
  /** Default true. */
  allowBookmarks?: boolean | undefined
  /** When the server ends the watch, seconds. The client gives up 5 s later. Default 290. */
  timeoutSeconds?: number | undefined
  /**
   * The watch ends as agreed when the server has said nothing, not even a bookmark, for so long while it was listened to:
   * one that hangs shows in nothing else. Left out: silence is trusted until timeoutSeconds.
   */
  silenceSeconds?: number | undefined
  /** The server has accepted the watch. */
  onOpen?: (() => void) | undefined
  /** Told of every piece of the stream. */
  onBytes?: ((bytes: number) => void) | undefined
  /** Streams the present objects first, then a bookmark for which endsInitialEvents() holds (Kubernetes 1.32, beta). */
  sendInitialEvents?: boolean | undefined
  accept?: string | undefined
  signal?: AbortSignal | undefined
  headers?: Record<string, string> | undefined
}

/** What a bookmark says: everything up to this resourceVersion has been sent. */
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
  /** Checked and admitted by the server, not stored. */
  dryRun?: boolean | undefined
}

export interface ApplyOptions extends WriteOptions {
  fieldManager: string
  /** Takes over fields that another manager owns, where they differ. */
  force?: boolean | undefined
}

export interface DeleteOptions extends RequestOptions {
  /** Preconditions: 409 Conflict when the object is another one, or has moved on. */
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
 * rejects with ApiError (the server's answer), ApiConnectionError (no whole answer) or the signal's reason.
 * Sent twice are only: a request that was answered with 401, when there is a new token; a GET on a kept connection that
 * the server had just closed.
 */
export interface KubeClient extends AsyncDisposable {
  /** `host:port`. */
  readonly host: string
  request<T>(request: KubeRequest): Promise<T>
  /** The body as it is: what is no JSON, as a pod's log. */
  text(path: string, options?: TextOptions): Promise<string>
  get<T = KubeObject>(path: string, options?: GetOptions): Promise<T>
  /**
   * Pages of one consistent snapshot. Where the snapshot has been compacted between two pages, it throws an error for
   * which isExpired() holds: start again.
   */
  list<T = KubeObject>(path: string, options?: ListOptions): AsyncGenerator<ListPage<T>, void, undefined>
  /**
   * Changes in the order of the server. Reads no further than the consumer (the connection is held back). Returns when
   * the server ends the watch at timeoutSeconds; throws when it breaks; isExpired() holds when resourceVersion is too
   * old. Leaving the loop closes the connection.
   */
  watch<T = KubeObject>(path: string, options?: WatchOptions): AsyncGenerator<WatchEvent<T>, void, undefined>
  /** POST to a collection. isAlreadyExists() holds when the name is taken. */
  create<T = KubeObject>(collection: string, object: object, options?: WriteOptions): Promise<T>
  /** Server-side apply. With `metadata.uid` in the object it never creates one anew: Conflict (Kubernetes 1.36). */
  apply<T = KubeObject>(path: string, object: object, options: ApplyOptions): Promise<T>
  /** Server-side apply of `…/status`; `path` is the object's. A missing object is NotFound, never created. */
  applyStatus<T = KubeObject>(path: string, object: object, options: ApplyOptions): Promise<T>
  patch<T = KubeObject>(path: string, patch: object, type: PatchType, options?: WriteOptions): Promise<T>
  /** PUT; with `metadata.resourceVersion` in the object a Conflict when the stored one has moved on. */
  replace<T = KubeObject>(path: string, object: object, options?: WriteOptions): Promise<T>
  /** The answer is the object while it still exists (finalizers, grace period), else it may be a Status. */
  delete(path: string, options?: DeleteOptions): Promise<KubeObject | Status>
  /**
   * The same server over the same connections, as another user: what this client's credentials must be allowed to
   * impersonate. A service account's groups go with its name (Kubernetes 1.36).
   */
  as(user: string): KubeClient
  /** The same, with these headers in each request. */
  with(headers: Record<string, string>): KubeClient
  /** Ends every connection, also those in use: their requests and watches fail. */
  close(): Promise<void>
}
