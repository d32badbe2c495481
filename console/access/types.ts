import type { IncomingMessage } from 'node:http'

/** A person, as the log and Events name them. */
export interface Person {
  readonly name: string
  readonly groups: readonly string[]
}

/** Why a request is not answered. */
export interface Refusal {
  readonly status: 401 | 403 | 503
  readonly message: string
}

/** One act in the Kubernetes API, as RBAC names it. */
export interface Action {
  readonly verb: string
  readonly group: string
  readonly resource: string
  readonly namespace?: string
  readonly name?: string
}

/** An object of the Kubernetes API that a write is about. */
export interface About {
  readonly apiVersion: string
  readonly kind: string
  readonly namespace?: string
  readonly name: string
}

/** Decides the rights of people: on a developer's machine by a token, in a cluster by the API server's answer. */
export interface Access {
  authenticate(request: IncomingMessage): Promise<Person | Refusal>
  /** Whether the person may do this in the Kubernetes API. */
  may(person: Person, action: Action): Promise<boolean>
  /** Logs a write of a person that `may` has allowed, and reports it as an Event. */
  record(person: Person, what: string, about: About): Promise<void>
}
