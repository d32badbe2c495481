import type { IncomingMessage } from 'node:http'
import type { ResourceRef } from '#contracts'
import { RECONCILERS } from '#spec'

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
  /**
   * Whether the person may do this in the Kubernetes API. Calls `unchecked` if a part of the answer is false because the
   * person has asked too much.
   */
  may(person: Person, action: Action, unchecked?: () => void): Promise<boolean>
}

/** Logs a write of a person that `may` has allowed, and reports it as an Event in the cluster of the object. */
export type RecordWrite = (person: Person, what: string, about: About) => Promise<void>

type Kind = Pick<ResourceRef, 'group' | 'resource'>

const inside = (namespace: string | undefined, name?: string) => ({
  ...(namespace !== undefined && { namespace }),
  ...(name !== undefined && { name }),
})

/** To see one object, and its runs; without a name, all of the kind there. */
export const toGet = ({ group, resource }: Kind, namespace: string | undefined, name?: string): Action => ({
  verb: 'get',
  group,
  resource,
  ...inside(namespace, name),
})

/** To see the names of objects, and what the queue and RUNS have of them in short. */
export const toList = ({ group, resource }: Kind, namespace: string | undefined): Action => ({
  verb: 'list',
  group,
  resource,
  ...inside(namespace),
})

/** To see how much the platform itself and former functions have used in each namespace. */
export const TO_LIST_NAMESPACES: Action = { verb: 'list', group: '', resource: 'namespaces' }

const ofReconcilers = (verb: string, subresource: string, name?: string): Action => ({
  verb,
  group: RECONCILERS.group,
  resource: `${RECONCILERS.resource}${subresource}`,
  ...inside(undefined, name),
})

/** To see which reconcilers there are, and their counts. */
export const TO_LIST_RECONCILERS = ofReconcilers('list', '')
/** Shows messages that may be of any object. */
export const TO_LIST_DEAD = ofReconcilers('list', '/dead')
export const TO_REPLAY_DEAD = ofReconcilers('update', '/dead')
/** To run, retry, park and purge keys. */
export const toChangeQueue = (reconciler: string): Action => ofReconcilers('update', '/queue', reconciler)
/** Stores the event of an object again. */
export const TO_PUBLISH = ofReconcilers('create', '/events')
